"""What the forwarder's tests send: a machine that records itself, restart by restart."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from vmsonar_archive.records import CpuRow, JobInfoRow, NodeRow, ProcessInfoRow, ProcessRow, Row, SysInfo
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making.archives import BOOT, START, append_samples, boottime_at, encoded, open_writer


def sysinfo(**fields: object) -> SysInfo:
    settings = {
        "time": START, "seq": 0, "run": "", "boot": BOOT, "boottime": 10**15, "cpus": 2, "sockets": 1,
        "cores_per_socket": 2, "threads_per_core": 1, "numa_nodes": 1, "memory_total": 2**33, "cpu_model": "EPYC",
        "hostname_full": "vm.example", "hostname_short": "vm", "kernel_release": "6.1", "architecture": "x86_64",
        "ticks_per_second": 100, "booted": START - timedelta(seconds=10**6), "interval": 10_000,
    }  # fmt: skip
    return SysInfo(**{**settings, **fields})  # type: ignore[arg-type]


def rows(number: int, processes: int, fresh: bool) -> dict[str, list[bytes]]:
    """A node with so many processes in jobs of three; infos only where the writer begins a segment."""
    node = NodeRow(user_ticks=100 * number, load1=0.25, memory_total=2**33, memory_available=2**32)
    table = [
        ProcessRow(pid=pid, start_ticks=pid, pgid=pid - pid % 3, ppid=1, state="S", threads=2, resident=2**24,
                   user_ticks=number * pid, system_ticks=number, shared=2**20, read_bytes=4096 * number)
        for pid in range(10, 10 + processes)
    ]  # fmt: skip
    found: dict[str, Sequence[Row]] = {
        "node": [node],
        "cpu": [CpuRow(cpu_index=index, user_ticks=number) for index in range(2)],
        "process": table,
    }
    if fresh:
        found["process_info"] = [
            ProcessInfoRow(series_id=f"p{row.pid}", pid=row.pid, start_ticks=row.start_ticks, user_name="alice",
                           user_id=1000, program="python3")
            for row in table
        ]  # fmt: skip
        found["job_info"] = [
            JobInfoRow(series_id=f"j{pgid}", pgid=pgid, start_ticks=1, job_id=str(pgid), job_source="process_group")
            for pgid in sorted({row.pgid or 0 for row in table})
        ]  # fmt: skip
    return encoded(found)


class Recorder:
    """Appends samples ten seconds apart, as the daemon would."""

    def __init__(self, root: Path, processes: int = 6, start: datetime = START, **settings: object) -> None:
        self.root = root
        self.processes = processes
        self.time = start
        self.number = 0
        self.is_closed = False
        #: The numbers of all samples ever appended.
        self.samples: list[int] = []
        self._settings = {"now": lambda: self.time, **settings}
        self.writer = self._open()

    def _open(self) -> ArchiveWriter:
        writer = open_writer(self.root, **self._settings)
        writer.append_sysinfo(sysinfo(time=self.time, boottime=boottime_at(self.time)))
        return writer

    def record(self, count: int, processes: int | None = None) -> None:
        size = self.processes if processes is None else processes
        for _ in range(count):  # the writer's clock follows
            one = append_samples(
                self.writer, 1, lambda n, fresh: rows(n, size, fresh), start=self.time, first=self.number
            )
            self.samples += one
            self.time += timedelta(seconds=10)
            self.number += 1

    def restart(self) -> None:
        assert self.writer.close()
        self.writer = self._open()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self.writer.close()


def make_day(root: Path, samples: int = 8640, processes: int = 6) -> Path:
    recorder = Recorder(root, processes)
    recorder.record(samples)
    recorder.close()
    return root
