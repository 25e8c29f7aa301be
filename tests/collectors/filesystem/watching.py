"""A collector whose rows come back as Structs, at whatever moment the test says it is."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
from vmsonar_archive.records import KINDS, FilesystemRow, GapRow

from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.filesystem.collector import FilesystemCollector, make
from vmsonar.config.schema import Config
from vmsonar.host.roots import Host

START = datetime(2026, 11, 16, tzinfo=UTC)


@dataclass
class Watch:
    """One collector, from its first sample on."""

    host: Host = field(default_factory=Host)
    seconds: float = 0.0
    gaps: list[GapRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.collector: FilesystemCollector = make(Setup(Config(), self.host))

    def rows(self, after: float = 1.0, fresh: bool = False) -> dict[str, FilesystemRow]:
        """What a sample that many seconds later says, by mount point; `gaps` holds its gap rows."""
        self.seconds += after
        time = START + timedelta(seconds=self.seconds)
        tick = Tick(time=time, boottime=round(self.seconds * 1e9), boot="b", fresh=fresh)
        found = self.collector.collect(tick).by_kind
        self.gaps = [msgspec.json.decode(row, type=GapRow) for row in found.get("gap", [])]
        rows = [msgspec.json.decode(row, type=KINDS["filesystem"]) for row in found.get("filesystem", [])]
        assert len({(row.device_major, row.device_minor) for row in rows}) == len(rows)
        return {row.mount_point: row for row in rows}

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.collector.close()
