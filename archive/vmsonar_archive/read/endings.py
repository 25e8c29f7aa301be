"""How a boot of the machine ended, judged by the last that was recorded of it."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from vmsonar_archive.read.reader import last_sample
from vmsonar_archive.records import EventRow, Sample, Stamp

# A notice that the machine outlived by this much did not end it.
_NOTICE_HOLDS = timedelta(minutes=30)


class Ending(StrEnum):
    """How it ended."""

    ORDERLY_POWEROFF = "orderly_poweroff"
    REBOOT = "reboot"
    #: The cloud had said that it would take the machine away.
    RECLAIM_NOTICE = "reclaim_notice"
    #: The recorder was stopped while the machine went on.
    STOPPED = "stopped"
    #: A panic, a power cut, or a kill from outside: records stop, and the next ones are of another boot.
    NO_FAREWELL = "no_farewell"
    UNKNOWN = "unknown"


_GOALS = {
    "poweroff": Ending.ORDERLY_POWEROFF,
    "halt": Ending.ORDERLY_POWEROFF,
    "reboot": Ending.REBOOT,
    "kexec": Ending.REBOOT,
    "soft_reboot": Ending.REBOOT,
    "stop": Ending.STOPPED,
}
# What a machine that is taken away looks like, with and without time to shut down.
_AS_ANNOUNCED = (Ending.ORDERLY_POWEROFF, Ending.NO_FAREWELL, Ending.UNKNOWN)


@dataclass(slots=True)
class BootTail:
    """What was last recorded of one boot."""

    boot: str
    last: datetime
    #: Why the recorder stopped, where the last record says that it did; empty where that says no more.
    farewell: str | None = None
    #: The last notice that the machine would be taken away.
    notice: datetime | None = None
    #: Whether a recorder ran that says farewell; single samples, as cron takes them, never do.
    is_daemon: bool = False
    _run: str = ""

    def see(self, stamp: Stamp, events: Iterable[EventRow]) -> None:
        """Takes in the next record of this boot."""
        self.is_daemon = stamp.run == self._run
        self._run, self.last, self.farewell = stamp.run, stamp.time, None
        for event in events:
            if event.event_type == "daemon_start":
                self.is_daemon = True
            elif event.event_type == "daemon_stop":
                self.farewell, self.is_daemon = event.reason or "", True
            elif event.event_type == "teardown_notice":
                self.notice = event.happened or stamp.time


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """How a boot ended, when it was last seen, and what that rests on."""

    how: Ending
    time: datetime
    evidence: str


def machine_end(tail: BootTail, followed: bool) -> MachineEnd:
    """`followed`: there are records of a later boot."""
    how, evidence = _judged(tail, followed)
    # A recorder that was stopped and could not learn why may have been so because the machine went.
    if (
        (how in _AS_ANNOUNCED or tail.farewell == "")
        and tail.notice is not None
        and tail.last - tail.notice <= _NOTICE_HOLDS
    ):
        how, evidence = Ending.RECLAIM_NOTICE, f"the cloud's notice of {tail.notice:%F %TZ}; {evidence}"
    return MachineEnd(how, tail.last, evidence)


def _judged(tail: BootTail, followed: bool) -> tuple[Ending, str]:
    if tail.farewell in _GOALS:
        return _GOALS[tail.farewell], f"the last record says why the recorder stopped: {tail.farewell}"
    if tail.farewell is not None:
        return Ending.STOPPED, "the recorder was stopped, and nobody said why"
    if not followed:
        return Ending.UNKNOWN, "the records stop, and nothing was recorded after"
    if not tail.is_daemon:
        return Ending.UNKNOWN, "single samples do not say farewell"
    return Ending.NO_FAREWELL, "the records stop without farewell, and the next are of another boot"


class Told(Stamp, kw_only=True):
    """What is looked at of a record."""

    event: list[EventRow] = msgspec.field(default_factory=list)


def boot_tails(records: Iterable[Told | Sample]) -> list[BootTail]:
    """The tails of all boots, in the order of the records."""
    found: dict[str, BootTail] = {}
    for record in records:
        if record.boot not in found:
            found[record.boot] = BootTail(record.boot, record.time)
        found[record.boot].see(record, record.event)
    return list(found.values())


def last_tail(root: Path) -> BootTail | None:
    """The tail of an archive's last boot, by its last segment; None where nothing can be read."""
    told: list[Told] = []
    decode = msgspec.json.Decoder(Told).decode

    def see(line: bytes) -> None:
        with suppress(msgspec.MsgspecError):
            told.append(decode(line))

    last_sample(root, see)
    return next(reversed(boot_tails(told)), None)


def boot_before(root: Path, boot: str) -> MachineEnd | None:
    """How the boot before this one ended; None for an archive whose last record is of this one, or without any."""
    tail = last_tail(root)
    return None if tail is None or tail.boot == boot else machine_end(tail, followed=True)
