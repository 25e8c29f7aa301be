"""How something ended, as the kernel or an engine told it, in words (wait(2), signal(7) of Linux)."""

from dataclasses import dataclass
from datetime import datetime

from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts.queries import Record

# Linux's numbers, whatever system reads the archive.
_SIGNALS = (
    *("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM"),
    *("TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF"),
    *("WINCH", "IO", "PWR", "SYS"),
)  # fmt: skip
_NUMBERS = {name: number for number, name in enumerate(_SIGNALS, start=1)}
HUP, KILL, TERM, ABRT, BUS = (_NUMBERS[name] for name in ("HUP", "KILL", "TERM", "ABRT", "BUS"))
#: Signals by which people, terminals and service managers end things.
ASKED = frozenset(_NUMBERS[name] for name in ("HUP", "INT", "TERM", "PIPE"))
#: Signals that a program's own mistake brings about.
CRASHES = frozenset(_NUMBERS[name] for name in ("ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS"))

_MEANINGS = {
    _NUMBERS["XFSZ"]: "the kernel's signal at a limit of file size",
    _NUMBERS["XCPU"]: "the kernel's signal at a limit of CPU time",
    _NUMBERS["PIPE"]: "the kernel's signal to who writes where nobody reads",
}
#: A shell and an engine add this to the number of the signal that ended what they waited for.
_BY_SIGNAL = 128
_TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Status:
    """One end: its status, when, and who told it."""

    time: datetime
    code: int | None = None
    signal: int | None = None
    core_dumped: bool = False
    source: str | None = None
    program: str | None = None
    started_by: str | None = None
    detail: str | None = None
    #: Whether the time is that of the end, and not of the sample that found it.
    is_exact: bool = False
    #: The sample that told it.
    told: datetime | None = None

    @property
    def is_known(self) -> bool:
        return self.code is not None or self.signal is not None

    @property
    def who(self) -> str:
        """What ended, as far as it has a name."""
        starter = f"a child of {plain(self.started_by)}" if self.started_by else "a process"
        return plain(self.program) if self.program else starter

    @property
    def is_timeout(self) -> bool:
        """Whether timeout(1) ended it, because the time that it was given was up."""
        return self.code == _TIMED_OUT and self.program == "timeout"

    @property
    def by_signal(self) -> int | None:
        """The signal that ended it, or that its code stands for."""
        if self.signal is not None or self.code is None:
            return self.signal
        number = self.code - _BY_SIGNAL
        return number if 1 <= number <= len(_SIGNALS) else None

    @property
    def is_failure(self) -> bool:
        """Neither success nor what a person or a service manager asked for."""
        return self.is_known and self.code != 0 and self.by_signal not in ASKED

    @property
    def words(self) -> str:
        if self.signal is not None:
            return signal_name(self.signal) + _behind(_MEANINGS.get(self.signal)) + _core(self.core_dumped)
        if self.code is None:
            return f"not known: {plain(self.detail or 'this kernel does not tell')}"
        return f"exit {self.code}" + _behind(self._meaning())

    def _meaning(self) -> str | None:
        if self.is_timeout:
            return "which timeout(1) gives when the time is up"
        number = self.by_signal
        return None if number is None else f"which stands for {signal_name(number)}"


def _behind(words: str | None) -> str:
    return f", {words}" if words else ""


def _core(dumped: bool) -> str:
    return ", core dumped" if dumped else ""


def signal_name(number: int) -> str:
    return f"SIG{_SIGNALS[number - 1]}" if 1 <= number <= len(_SIGNALS) else f"signal {number}"


def status_of(row: Record) -> Status:
    """The status that an event tells."""
    return Status(
        time=row["happened"] or row["time"],
        code=row["exit_code"],
        signal=row["exit_signal"],
        core_dumped=bool(row["core_dumped"]),
        source=row["exit_source"] or ("engine" if row["event_type"] == "container_die" else None),
        program=row["program"],
        started_by=row["started_by"],
        detail=row["detail"] if row["event_type"] == "exit" else "no engine told it",
        is_exact=row["happened"] is not None,
        told=row["time"],
    )
