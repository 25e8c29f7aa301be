"""A container collector driven by hand against the real machine, with everything that it told."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from vmsonar_archive.records import ContainerInfoRow, ContainerRow, EventRow
from vmsonar_archive.records.sample import KINDS

from tests.collectors.container.ticks import tick_of
from vmsonar.collectors.base import Setup
from vmsonar.collectors.container.collector import ContainerCollector
from vmsonar.collectors.container.link import Companion, Link
from vmsonar.config.schema import DEFAULT_LABELS, Config
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host

#: Five times what is usual on two busy cores.
SECONDS = 30


class Recording:
    """Samples when asked to; keeps the last row per container and every event and gap."""

    def __init__(self, run: Path, sockets: Sequence[Path | str], more: Sequence[str] = ()) -> None:
        host = Host(run=run)
        companion = Companion(sockets=[str(path) for path in sockets], labels=DEFAULT_LABELS, more=more)
        self.collector = ContainerCollector(Setup(Config(), host), Link(run, companion, Clock()))
        self.rows: dict[str, ContainerRow] = {}
        self.infos: dict[str, ContainerInfoRow] = {}
        self.events: list[EventRow] = []
        self.gaps: list[str] = []
        self.seconds: list[float] = []
        self.raw = b""

    def sample(self) -> None:
        tick = tick_of()
        began = time.monotonic()
        found = self.collector.collect(tick)
        self.seconds.append(time.monotonic() - began)
        self.raw += b"".join(row for rows in found.by_kind.values() for row in rows)
        decoded = {
            kind: [msgspec.json.decode(row, type=KINDS[kind]) for row in rows]
            for kind, rows in found.by_kind.items()
        }
        self.rows |= {row.container_id: row for row in decoded.get("container", [])}
        self.infos |= {row.container_id: row for row in decoded.get("container_info", [])}
        self.events += decoded.get("event", [])
        self.gaps += [row.reason for row in decoded.get("gap", [])]

    def until(self, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        """Samples ten times a second until the condition holds."""
        deadline = time.monotonic() + seconds
        while True:
            self.sample()
            if condition():
                return
            assert time.monotonic() < deadline, f"not within {seconds} s; gaps: {self.gaps}"
            time.sleep(0.1)

    def assert_never_waited(self) -> None:
        """A sample takes about 1 ms; an engine is given half a second, and a loaded machine may take one for itself."""
        assert median(self.seconds) < 0.4
        assert max(self.seconds) < 2

    def by_name(self, name: str) -> ContainerInfoRow | None:
        return next((info for info in self.infos.values() if info.name == name), None)

    def events_of(self, container_id: str) -> list[str]:
        return [event.event_type for event in self.events if event.container_id == container_id]

    def event(self, container_id: str, kind: str) -> EventRow | None:
        found = [row for row in self.events if (row.container_id, row.event_type) == (container_id, kind)]
        return found[-1] if found else None

    def close(self) -> None:
        self.collector.close()
