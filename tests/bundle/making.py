"""Archives for the tests of bundles, as a daemon would have left them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from vmsonar_archive.budget import Budget
from vmsonar_archive.identity import NodeIdentity
from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import (
    CpuRow,
    EventRow,
    JobInfoRow,
    JobRow,
    NodeRow,
    ProcessInfoRow,
    ProcessRow,
    SysInfo,
)
from vmsonar_archive.writer import ArchiveWriter

NODE = NodeIdentity(
    machine_id="0123456789abcdef0123456789abcdef", hostname_short="web1", hostname_full="web1.example.org"
)
BOOT = "8d1bfb5c-4a23-4a2a-8f0b-1d53ef6c2f3e"
START = datetime(2026, 11, 16, 13, 58, tzinfo=UTC)
#: A user who is neither root nor anybody.
STRANGER = 54321


def open_writer(root: Path, when: datetime = START) -> ArchiveWriter:
    return ArchiveWriter.open(root, NODE, Budget(max_bytes=2**30, min_free=0), now=lambda: when)


def rows_at(number: int, fresh: bool, processes: int = 3) -> dict[str, list[bytes]]:
    """The rows of one sample; info rows only where a segment begins."""
    pids = range(100, 100 + processes)
    rows = {
        "node": [encode_row(NodeRow(user_ticks=1000 + number, memory_total=2**30, cpus_online=2))],
        "cpu": [encode_row(CpuRow(cpu_index=index, user_ticks=500 + number)) for index in range(2)],
        "job": [encode_row(JobRow(pgid=pid, start_ticks=7, user_ticks=10 * number)) for pid in pids],
        "process": [
            encode_row(ProcessRow(pid=pid, start_ticks=7, pgid=pid, user_ticks=10 * number)) for pid in pids
        ],
    }
    if fresh:
        rows["process_info"] = [
            encode_row(
                ProcessInfoRow(
                    series_id=f"series-{pid}", pid=pid, start_ticks=7, user_name="alice", program="train"
                )
            )
            for pid in pids
        ]
        rows["job_info"] = [
            encode_row(JobInfoRow(series_id=f"job-{pid}", pgid=pid, start_ticks=7, user_name="alice"))
            for pid in pids
        ]
        rows["event"] = [encode_row(EventRow(event_type="daemon_start", detail="hello"))]
    return rows


def fill(
    writer: ArchiveWriter, samples: int, begin: datetime = START, step: float = 10.0, first: int = 0
) -> None:
    """Appends samples, and a sysinfo before the first one."""
    writer.append_sysinfo(
        SysInfo(time=begin, seq=0, run="", boot=BOOT, boottime=10**12, hostname_short="web1", cpus=2)
    )
    for number in range(first, first + samples):
        time = begin + timedelta(seconds=step * (number - first))
        rows = rows_at(number, writer.begins_segment(time))
        writer.append(time, BOOT, 10**12 + int(1e9 * step * number), rows)


def make_archive(root: Path, samples: int = 40) -> Path:
    """A closed archive over two hours: 12 samples before 14:00 and the others after it."""
    writer = open_writer(root)
    fill(writer, samples)
    writer.close()
    return root
