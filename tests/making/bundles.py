"""Archives for the tests of bundles, as a daemon would have left them."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.records import (
    CpuRow,
    EventRow,
    JobInfoRow,
    JobRow,
    NodeRow,
    ProcessInfoRow,
    ProcessRow,
    Row,
    SysInfo,
)
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making import archives
from tests.making.archives import BOOT, append_samples, boottime_at, encoded

NODE = NodeIdentity(
    machine_id="0123456789abcdef0123456789abcdef", hostname_short="web1", hostname_full="web1.example.org"
)
START = datetime(2026, 11, 16, 13, 58, tzinfo=UTC)
#: A user who is neither root nor anybody.
STRANGER = 54321


def open_writer(root: Path, when: datetime = START, node: NodeIdentity = NODE) -> ArchiveWriter:
    return archives.open_writer(root, node=node, now=lambda: when)


def rows_at(number: int, fresh: bool, processes: int = 3) -> dict[str, list[bytes]]:
    """The rows of one sample; info rows only where a segment begins."""
    pids = range(100, 100 + processes)
    rows: dict[str, list[Row]] = {
        "node": [NodeRow(user_ticks=1000 + number, memory_total=2**30, cpus_online=2)],
        "cpu": [CpuRow(cpu_index=index, user_ticks=500 + number) for index in range(2)],
        "job": [JobRow(pgid=pid, start_ticks=7, user_ticks=10 * number) for pid in pids],
        "process": [ProcessRow(pid=pid, start_ticks=7, pgid=pid, user_ticks=10 * number) for pid in pids],
    }
    if fresh:
        rows["process_info"] = [
            ProcessInfoRow(
                series_id=f"series-{pid}", pid=pid, start_ticks=7, user_name="alice", program="train"
            )
            for pid in pids
        ]
        rows["job_info"] = [
            JobInfoRow(series_id=f"job-{pid}", pgid=pid, start_ticks=7, user_name="alice") for pid in pids
        ]
        rows["event"] = [EventRow(event_type="daemon_start", detail="hello")]
    return encoded(rows)


def fill(
    writer: ArchiveWriter,
    samples: int,
    begin: datetime = START,
    step: float = 10.0,
    first: int = 0,
    processes: int = 3,
) -> None:
    """Appends samples, and a sysinfo before the first one."""
    start = boottime_at(begin)
    writer.append_sysinfo(
        SysInfo(time=begin, seq=0, run="", boot=BOOT, boottime=start, hostname_short="web1", cpus=2)
    )
    rows_of = partial(rows_at, processes=processes)
    append_samples(writer, samples, rows_of, start=begin, seconds=step, first=first)


def make_archive(root: Path, samples: int = 40) -> Path:
    """A closed archive over two hours: 12 samples before 14:00 and the others after it."""
    writer = open_writer(root)
    fill(writer, samples)
    writer.close()
    return root
