"""What a group that is gone has used, from the group above it: that keeps the CPU time of those that were removed."""

import os
from collections.abc import Callable
from typing import NamedTuple

from vmsonar.collectors.base import numbers

# More neighbours than that are not read for the sake of one.
_MOST_CHILDREN = 512


class Share(NamedTuple):
    """The CPU time that may be one group's: all of it if `exact`, else an upper bound."""

    most: int | None
    exact: bool


class Parent:
    """One group with containers below it, known by their inodes; told of each that ended, it tells its CPU time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        #: Groups that live, as far as we know; those that were settled, though perhaps not yet removed.
        self._children: set[int] = set()
        self._settled: set[int] = set()
        #: What was counted with another one already.
        self._mixed: set[int] = set()
        self._spoilt = False
        self._used_by_gone = self._look()

    def expect(self, inode: int) -> None:
        """A group of ours lives here."""
        self._children.add(inode)

    def spoil(self) -> None:
        """Something was here of which we know too little: the next answer is a bound."""
        self._spoilt = True

    def settle(self, inode: int) -> Share:
        """What a group has used that ended since the last call."""
        before, expected = self._used_by_gone, self._children - {inode}
        self._settled.add(inode)
        self._used_by_gone = self._look()
        missing = expected - self._children
        is_alone = not (missing or self._spoilt)
        self._mixed |= missing
        self._spoilt = False
        if before is None or self._used_by_gone is None or inode in self._mixed:
            self._mixed.discard(inode)
            return Share(None, False)
        return Share(max(0, self._used_by_gone - before), is_alone)

    def _look(self) -> int | None:
        """Reads the group and those that live below it; returns what all others have used."""
        try:
            present = {
                entry.inode(): entry.path
                for entry in os.scandir(self._folder)
                if entry.is_dir(follow_symlinks=False)
            }
            self._settled &= present.keys()
            self._children = present.keys() - self._settled
            if len(self._children) > _MOST_CHILDREN:
                return None
            read = _usage_reader(self._folder)
            used = sum(read(present[inode]) for inode in self._children)
            return read(self._folder) - used
        except (OSError, KeyError, ValueError):
            return None


def _usage_reader(folder: str) -> Callable[[str], int]:
    """How the CPU time of a group is read here, in nanoseconds."""
    if os.path.exists(f"{folder}/cpuacct.usage"):
        return lambda group: int(_text(f"{group}/cpuacct.usage"))
    return lambda group: numbers(_text(f"{group}/cpu.stat"), {b"\nusage_usec ": "usage"}, 1000)["usage"]


def _text(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(4096)
