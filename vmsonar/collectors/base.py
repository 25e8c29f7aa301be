"""What a collector is: one file that reads one part of the machine and returns encoded rows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

import msgspec
from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import Capability, GapRow


@dataclass(slots=True)
class ProcessFacts:
    """What other collectors need to know about a live process."""

    pid: int
    start_ticks: int
    ppid: int
    pgid: int
    user_id: int | None = None
    container_id: str | None = None


@dataclass(slots=True)
class Tick:
    """One moment of sampling, as every collector sees it."""

    time: datetime
    boottime: int
    boot: str
    #: A new segment begins: info rows are due for every series, changed or not.
    fresh: bool
    #: Filled by the process collector, which runs first; empty when it is switched off.
    processes: Mapping[int, ProcessFacts] = field(default_factory=dict)
    #: Live processes per container id, filled likewise.
    containers: Mapping[str, list[int]] = field(default_factory=dict)


class Rows:
    """Encoded rows by kind; unchanged ones are put in as the bytes they were last time."""

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[str, list[bytes]] = {}

    def add(self, kind: str, row: msgspec.Struct) -> None:
        self.by_kind.setdefault(kind, []).append(encode_row(row))

    def extend(self, kind: str, encoded: list[bytes]) -> None:
        if encoded:
            self.by_kind.setdefault(kind, []).extend(encoded)

    def gap(self, collector: str, reason: str, detail: str | None = None) -> None:
        self.add("gap", GapRow(collector=collector, reason=reason, detail=detail))

    def merge(self, other: "Rows") -> None:
        for kind, encoded in other.by_kind.items():
            self.extend(kind, encoded)


class Collector(ABC):
    """Reads one part of the machine. It may raise: the sampler turns that into a gap row and goes on."""

    #: Name in the configuration, in gap rows and in `vmsonar doctor`.
    name: ClassVar[str]
    #: The kinds of rows it makes.
    kinds: ClassVar[tuple[str, ...]]
    #: A collector that may block is run on a thread of its own and given up after so many seconds.
    time_limit: ClassVar[float | None] = None

    @abstractmethod
    def collect(self, tick: Tick) -> Rows:
        """The rows of this tick."""

    @abstractmethod
    def capabilities(self) -> list[Capability]:
        """What could be collected here, what cannot, and what would change that."""

    def describe(self) -> Mapping[str, object]:
        """Fields of the sysinfo record that this collector knows, such as `cards` or `engines`."""
        return {}

    def has_news(self) -> bool:
        """Whether `describe` would tell something else than it last did, such as a card whose driver came late."""
        return False

    def settle(self, seconds: float) -> None:  # noqa: B027 - most collectors know at once
        """Waits at most so long for what answers late: a single sample has no second chance."""

    @property
    def companion_pid(self) -> int | None:
        """Its helper process, where it has one: what that costs is counted with us if we started it."""
        return None

    def close(self) -> None:  # noqa: B027 - most collectors hold nothing
        """Gives back what it holds."""
