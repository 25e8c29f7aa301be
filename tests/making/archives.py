"""The core that every maker of archives builds on, and small archives with known content."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.records import NodeRow, ProcessRow, Row, SysInfo
from vmsonar_archive.verify.archive import Depth, verify
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.writer import ArchiveWriter

NODE = NodeIdentity(
    machine_id="0123456789abcdef0123456789abcdef", hostname_short="vm", hostname_full="vm.example"
)
BOOT = "5c6e2a3d-8f3b-4d5e-9a1c-2b7f0e6d4c31"
START = datetime(2026, 11, 16, 14, 0, tzinfo=UTC)
# Tests run on disks that may have less free than a real node keeps.
BUDGET = Budget(max_bytes=1024**3, min_free=0)


def rows(number: int, processes: int = 3) -> dict[str, list[bytes]]:
    """The rows of one sample; every sample differs from the one before."""
    node = NodeRow(user_ticks=100 * number, load1=0.25, memory_total=2**33)
    table = [
        ProcessRow(pid=pid, start_ticks=pid, user_ticks=number * pid, state="S")
        for pid in range(1, processes + 1)
    ]
    return encoded({"node": [node], "process": table})


def encoded(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[bytes]]:
    """Rows by kind, as the writer takes them."""
    return {kind: [encode_row(row) for row in found] for kind, found in rows.items()}


def utc_now() -> datetime:
    return datetime.now(UTC)


def open_writer(root: Path, **settings: object) -> ArchiveWriter:
    """A writer with room enough, for a machine and a day of the tests' own unless told otherwise."""
    settings.setdefault("budget", BUDGET)
    settings.setdefault("now", lambda: START + timedelta(days=1))
    return ArchiveWriter(root, settings.pop("node", NODE), **settings)  # type: ignore[arg-type]


def boottime_at(time: datetime) -> int:
    """The clock that no step disturbs (CLOCK_BOOTTIME), in nanoseconds."""
    return int((time - START).total_seconds() * 1e9) + 10**15


def append_samples(
    writer: ArchiveWriter, count: int, rows_of: Callable[[int, bool], dict[str, list[bytes]]],
    *, start: datetime = START, seconds: float = 10, first: int = 0,
) -> list[int]:  # fmt: skip
    """Appends samples at a fixed distance; `rows_of` gets each one's number and whether it begins a segment."""
    seqs = []
    for number in range(first, first + count):
        time = start + timedelta(seconds=seconds * (number - first))
        rows = rows_of(number, writer.begins_segment(time))
        seqs.append(writer.append(time, BOOT, boottime_at(time), rows))
    return seqs


def record(writer: ArchiveWriter, count: int, *, processes: int = 3, **settings: object) -> None:
    """Appends samples of a few processes."""
    append_samples(writer, count, lambda number, _: rows(number, processes), **settings)  # type: ignore[arg-type]


def make_archive(root: Path, count: int = 20, **settings: object) -> Path:
    """A sealed archive with one sysinfo record and some samples."""
    writer = open_writer(root)
    writer.append_sysinfo(
        SysInfo(time=START, seq=0, run="", boot=BOOT, boottime=10**15, cpus=2, interval=10_000)
    )
    record(writer, count, **settings)  # type: ignore[arg-type]
    assert writer.close()
    return root


def read_seqs(root: Path) -> list[int]:
    with open_archive(root) as archive:
        return [sample.seq for sample in archive.samples()]


def check(root: Path, depth: Depth = Depth.FULL, head: str | None = None):
    source = FolderSource(root)
    try:
        return verify(source, depth, head)
    finally:
        source.close()


def segments(root: Path, kind: str = "sample") -> list[Path]:
    return sorted(root.glob(f"[0-9]*/*/*/{kind}-*.jsonl.zst"))


def codes(report) -> set[str]:
    return {finding.code.value for finding in report.findings}


def flip(path: Path, offset: int, mask: int = 0x01) -> Callable[[], None]:
    """Flips bits of one byte; the returned call puts them back."""
    content = bytearray(path.read_bytes())
    original = bytes(content)
    content[offset] ^= mask
    path.write_bytes(content)
    return lambda: path.write_bytes(original) and None
