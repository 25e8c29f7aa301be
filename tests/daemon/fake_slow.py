"""A module with a `make`, as the list of collectors wants it."""

from tests.daemon.fakes import Slow


def make(_setup):
    return Slow()
