"""File systems: their room at every sample, a row when it says something new (statvfs(3), proc_pid_mountinfo(5))."""

import errno
import os
from contextlib import suppress
from itertools import count

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, FilesystemRow

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles, capability, readable
from vmsonar.collectors.filesystem.helper import Answer, ask
from vmsonar.collectors.filesystem.link import HelperLink
from vmsonar.host.mounts import HELPER, HIDDEN, NONE, STATVFS, MountTree, Place, parse_mounts

_SECOND = 1_000_000_000
_ROW_EVERY = 60 * _SECOND
_ASK_EVERY = 10 * _SECOND
_MOST_PLACES = 256
#: Seconds in a sample for the helper's answers, and nanoseconds after which its silence is a gap.
_PATIENCE = 0.02
_SILENCE = 2 * _SECOND
_REASONS = {
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ENOENT: "missing",
    errno.EBUSY: "too_many",
}
_NOTHING = (0,) * 7
_COVERED = ("something is mounted over them in the recorder's own view", "ProtectHome=read-only in its unit")
_NOT_ASKED = "a server that is gone would hold up whoever asks"


class Space:
    """One file system: its row as it was last written, and the bounds within which nothing new is to be said."""

    def __init__(self, place: Place, prefix: bytes, number: int) -> None:
        mount, self.way = place.mount, place.way
        #: By which the helper knows it.
        self.number = number
        self.path = prefix + mount.point
        major, _, minor = mount.device.partition(b":")
        self.row = FilesystemRow(
            device_major=int(major),
            device_minor=int(minor),
            mount_point=mount.point.decode(errors="replace"),
            device=mount.source.decode(errors="replace") or None,
            fs_type=mount.kind.decode(errors="replace"),
            read_only=mount.read_only,
            space_source=None if self.way == HIDDEN else self.way,
        )
        self.name = f"{self.row.fs_type} {self.row.device_major}:{self.row.device_minor}"
        self.is_new, self.is_answered = True, False
        self.error: int | None = None
        self._blocks = -1
        self._low = self._high = self._low_inodes = self._high_inodes = -1

    def is_news(self, answer: Answer | None) -> bool:
        """Whether it differs by a per cent from what was last written, or less than a per cent is free."""
        if answer is None or isinstance(answer, int):
            return self.is_new or self._blocks > 0 or answer != self.error
        return (
            not self._low <= answer[3] <= self._high
            or not self._low_inodes <= answer[6] <= self._high_inodes
            or answer[1] != self._blocks
        )

    def take(self, answer: Answer | None) -> "Space":
        """Puts the figures into the row; none of them where there is no answer."""
        self.is_new, self.is_answered = False, answer is not None
        self.error = answer if isinstance(answer, int) else None
        figures = _NOTHING if answer is None or isinstance(answer, int) else answer
        unit, blocks, free, available, inodes, inodes_free, inodes_available = figures
        row, self._blocks = self.row, blocks
        # No blocks at all: a tmpfs without a limit, or a server that does not tell.
        sizes = (blocks * unit, free * unit, available * unit) if blocks else (None, None, None)
        row.bytes_total, row.bytes_free, row.bytes_available = sizes
        counts = (inodes, inodes_free, inodes_available) if inodes else (None, None, None)
        row.inodes_total, row.inodes_free, row.inodes_available = counts
        self._low, self._high = self._bounds(blocks, available)
        self._low_inodes, self._high_inodes = self._bounds(inodes, inodes_available)
        return self

    def is_like(self, other: "Space") -> bool:
        """Whether it is still mounted as it was."""
        fields = ("mount_point", "device", "fs_type", "read_only", "space_source")
        return self.way == other.way and all(
            getattr(self.row, name) == getattr(other.row, name) for name in fields
        )

    def trouble(self) -> Trouble | None:
        """Why there are no figures, by type and device: a gap's detail is no place for a path."""
        if self.way == HIDDEN:
            return "hidden", f"{self.name} is covered in the recorder's own view"
        if self.error is not None:
            return _REASONS.get(self.error, "io_error"), f"{self.row.fs_type}: {os.strerror(self.error)}"
        if self.way == HELPER and self.is_answered and self.row.bytes_total is None:
            return "no_size", f"{self.name} tells no size"
        return None

    def _bounds(self, total: int, available: int) -> tuple[int, int]:
        """Between these nothing is new; below a per cent everything is, unless nobody can write there."""
        step = max(1, total // 100)
        lowest = step if total and not self.row.read_only else 0
        return max(available - step + 1, lowest), available + step - 1


class FilesystemCollector(Collector):
    """A row for each file system that is mounted where we can see it, once, however often it is mounted."""

    name = "filesystem"
    kinds = ("filesystem",)

    def __init__(self, setup: Setup) -> None:
        self._table = setup.mounts
        self._prefix = b"" if setup.host.is_this_machine else os.fsencode(self._table.path.with_name("root"))
        self._content = b""
        self._helper = HelperLink(setup.clock)
        self._clock = setup.clock
        self._spaces: dict[bytes, Space] = {}
        self._numbers = count()
        self._by_us: list[Space] = []
        self._by_helper: list[Space] = []
        self._left_out = False
        self._rows_due = self._questions_due = 0
        self._troubles = Troubles(self.name)

    @property
    def companion_pid(self) -> int | None:
        return self._helper.pid

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        now = tick.boottime
        every = tick.fresh or now >= self._rows_due
        if every:
            self._rows_due = now + _ROW_EVERY
        changed = self._follow(now)
        due = [space for space in self._by_us if _tells(space, ask(space.path), every)]
        if self._by_helper:
            self._ask_helper(now)
            due += [space for space in self._by_helper if _tells(space, self._heard(space, now), every)]
        if every or changed:
            others = (space for space in self._spaces.values() if space.way in (NONE, HIDDEN))
            due += [space for space in others if _tells(space, None, every)]
        rows.extend("filesystem", [encode_row(space.row) for space in due])
        self._troubles.tell(self._found_troubles(now), tick, rows)
        return rows

    def settle(self, seconds: float) -> None:
        now = self._clock.boottime_ns()
        with suppress(OSError):
            self._follow(now)
        if self._by_helper:
            self._ask_helper(now, seconds)

    def capabilities(self) -> list[Capability]:
        found = [readable(self.name, "room on file systems", self._table.path)]
        with suppress(OSError):
            self._follow(self._clock.boottime_ns())
        ways = {space.way for space in self._spaces.values()}
        if HIDDEN in ways:
            found.append(capability(self.name, "room on covered file systems", *_COVERED))
        if NONE in ways:
            found.append(capability(self.name, "room on network file systems", _NOT_ASKED))
        return found

    def close(self) -> None:
        self._table.close()
        self._helper.close()

    def _follow(self, now: int) -> bool:
        """Takes up what was mounted, unmounted or remounted; whether there was anything."""
        content = self._table.content_at(now)
        if content is self._content:
            return False
        self._content = content
        places = MountTree(parse_mounts(content), self._prefix).places()
        self._left_out = self._table.is_cut or len(places) > _MOST_PLACES
        before, self._spaces = self._spaces, {}
        for place in places[:_MOST_PLACES]:
            space = Space(place, self._prefix, next(self._numbers))
            known = before.get(place.mount.device)
            self._spaces[place.mount.device] = known if known and known.is_like(space) else space
        self._by_us = [space for space in self._spaces.values() if space.way == STATVFS]
        self._by_helper = [space for space in self._spaces.values() if space.way == HELPER]
        self._helper.keep({space.number for space in self._by_helper})
        return True

    def _ask_helper(self, now: int, seconds: float = _PATIENCE) -> None:
        """Asks at most every few seconds; whoever answers at all does so at once, whoever hangs is not asked again."""
        wanted: dict[int, bytes] = {}
        if now >= self._questions_due:
            self._questions_due = now + _ASK_EVERY
            waiting = self._helper.waiting
            wanted = {space.number: space.path for space in self._by_helper if space.number not in waiting}
            self._helper.ask(wanted, now)
        self._helper.listen(seconds, wanted)

    def _heard(self, space: Space, now: int) -> Answer | None:
        return None if self._is_silent(space, now) else self._helper.answers.get(space.number)

    def _is_silent(self, space: Space, now: int) -> bool:
        return now - self._helper.waiting.get(space.number, now) >= _SILENCE

    def _found_troubles(self, now: int) -> list[Trouble]:
        found: list[Trouble] = []
        for space in self._spaces.values():
            if space.way == HELPER and self._is_silent(space, now):
                found.append(("timeout", f"{space.name} does not answer"))
            elif (trouble := space.trouble()) is not None:
                found.append(trouble)
        if self._left_out:
            found.append(("too_many", f"no more than {_MOST_PLACES} file systems are recorded"))
        if self._by_helper and self._helper.detail is not None:
            found.append(("helper", self._helper.detail))
        return found


def _tells(space: Space, answer: Answer | None, every: bool) -> bool:
    """Whether a row is due; if so, it now holds the answer."""
    if not every and not space.is_news(answer):
        return False
    space.take(answer)
    return True


make = FilesystemCollector
