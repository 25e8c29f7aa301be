"""A module with a `make`, as the list of collectors wants it."""

from tests.daemon.fakes import Hangs


def make(_setup):
    return Hangs()
