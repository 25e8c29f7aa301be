"""A module with a `make`, as the list of collectors wants it."""

from tests.daemon.fakes import Fake


def make(_setup):
    return Fake()
