"""Small archives with known content, for the tests."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vmsonar_archive.budget import Budget
from vmsonar_archive.identity import NodeIdentity
from vmsonar_archive.lines import encode_row
from vmsonar_archive.reader import open_archive
from vmsonar_archive.records import NodeRow, ProcessRow, SysInfo
from vmsonar_archive.source import FolderSource
from vmsonar_archive.verify import Depth, verify
from vmsonar_archive.writer import ArchiveWriter

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
    return {"node": [encode_row(node)], "process": [encode_row(row) for row in table]}


def open_writer(root: Path, **settings: object) -> ArchiveWriter:
    settings.setdefault("budget", BUDGET)
    settings.setdefault("now", lambda: START + timedelta(days=1))
    return ArchiveWriter.open(root, settings.pop("node", NODE), **settings)  # type: ignore[arg-type]


def record(
    writer: ArchiveWriter, count: int, *, start: datetime = START, seconds: float = 10, processes: int = 3
) -> None:
    """Appends so many samples at a fixed distance."""
    for number in range(count):
        time = start + timedelta(seconds=seconds * number)
        boottime = int((time - START).total_seconds() * 1e9) + 10**15
        writer.append(time, BOOT, boottime, rows(number, processes))


def make_archive(root: Path, count: int = 20, **settings: object) -> Path:
    """A sealed archive with one sysinfo record and so many samples."""
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
