"""The model load: processes of which 60 % are idle, 30 % light and 10 % busy, recorded as a real archive."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import JobInfoRow, JobRow, NodeRow, ProcessInfoRow, ProcessRow, SysInfo
from vmsonar_archive.write.budget import Budget

from tests.making.archives import BOOT, open_writer

START = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Process:
    """One process that works at a constant pace, with some noise."""

    row: ProcessRow
    pace: float
    chance: random.Random
    encoded: bytes = b""
    rest: float = field(default=0.0)

    def step(self) -> bool:
        """Ten seconds pass; True when anything changed."""
        if self.pace == 0.0:
            return False
        row = self.row
        self.rest += self.pace * 1000 * self.chance.uniform(0.5, 1.5)
        ticks, self.rest = divmod(self.rest, 1)
        row.user_ticks = (row.user_ticks or 0) + int(ticks * 0.8)
        row.system_ticks = (row.system_ticks or 0) + int(ticks * 0.2)
        row.minor_faults = (row.minor_faults or 0) + self.chance.randrange(1 + int(300 * self.pace))
        row.read_chars = (row.read_chars or 0) + self.chance.randrange(1 + int(1e6 * self.pace))
        row.write_chars = (row.write_chars or 0) + self.chance.randrange(1 + int(1e5 * self.pace))
        if self.pace > 0.1:
            row.resident = 4096 * self.chance.randrange(20_000, 30_000)
            row.write_bytes = (row.write_bytes or 0) + 4096 * self.chance.randrange(100)
        return True


def make_processes(count: int, seed: int = 1) -> list[Process]:
    chance = random.Random(seed)
    return [_process(chance, number) for number in range(count)]


def _process(chance: random.Random, number: int) -> Process:
    place = number % 10
    pace = 0.0 if place < 6 else chance.uniform(0.001, 0.02) if place < 9 else chance.uniform(0.3, 1.0)
    row = ProcessRow(
        pid=1000 + number,
        start_ticks=500 + 7 * number,
        pgid=1000 + number - number % 3,
        ppid=1,
        state="S" if pace < 0.1 else "R",
        threads=1 + number % 4,
        user_ticks=chance.randrange(10_000),
        system_ticks=chance.randrange(1_000),
        child_user_ticks=0,
        child_system_ticks=0,
        minor_faults=chance.randrange(100_000),
        major_faults=chance.randrange(100),
        virtual=4096 * chance.randrange(100_000),
        resident=4096 * chance.randrange(30_000),
        shared=4096 * chance.randrange(2_000),
        read_bytes=4096 * chance.randrange(1_000),
        write_bytes=4096 * chance.randrange(1_000),
        cancelled_bytes=0,
        read_chars=chance.randrange(10**8),
        write_chars=chance.randrange(10**8),
    )
    return Process(row, pace, chance, encode_row(row))


class Recorder:
    """Writes samples of the model load into an archive."""

    def __init__(self, root: Path, processes: int, *, seed: int = 1, start: datetime = START) -> None:
        node = NodeIdentity(machine_id=f"{seed:032x}", hostname_short=f"vm{seed}")
        self.processes = make_processes(processes, seed)
        self.time = start
        self.boottime = 10**13
        budget = Budget(max_bytes=2**40, min_free=0)
        self.writer = open_writer(root, node=node, budget=budget, now=lambda: self.time)
        self.groups: dict[int, list[Process]] = {}
        for process in self.processes:
            self.groups.setdefault(process.row.pgid or 0, []).append(process)
        stamp = {"time": start, "seq": 0, "run": "", "boot": BOOT, "boottime": self.boottime}
        self.writer.append_sysinfo(SysInfo(**stamp, cpus=64, ticks_per_second=100, interval=10_000))  # type: ignore[arg-type]

    def record(self, samples: int, tick: Callable[[], None] = lambda: None) -> None:
        for _ in range(samples):
            self.time += timedelta(seconds=10)
            self.boottime += 10**10
            self.writer.append(self.time, BOOT, self.boottime, dict(self._rows()))
            tick()

    def _rows(self) -> Iterator[tuple[str, list[bytes]]]:
        fresh = self.writer.begins_segment(self.time)
        for process in self.processes:
            if process.step():
                process.encoded = encode_row(process.row)
        yield "process", [process.encoded for process in self.processes]
        yield "job", [encode_row(self._job(pgid, members)) for pgid, members in self.groups.items()]
        yield "node", [encode_row(self._node())]
        if fresh:
            yield "process_info", [encode_row(self._info(process.row)) for process in self.processes]
            yield (
                "job_info",
                [encode_row(self._job_info(pgid, members)) for pgid, members in self.groups.items()],
            )

    def _job(self, pgid: int, members: list[Process]) -> JobRow:
        rows = [member.row for member in members]
        return JobRow(
            pgid=pgid,
            start_ticks=rows[0].start_ticks,
            processes=len(rows),
            processes_seen=len(rows),
            threads=sum(row.threads or 0 for row in rows),
            user_ticks=sum(row.user_ticks or 0 for row in rows),
            system_ticks=sum(row.system_ticks or 0 for row in rows),
            major_faults=sum(row.major_faults or 0 for row in rows),
            memory=sum((row.resident or 0) - (row.shared or 0) for row in rows),
            resident=sum(row.resident or 0 for row in rows),
            read_bytes=sum(row.read_bytes or 0 for row in rows),
            write_bytes=sum(row.write_bytes or 0 for row in rows),
        )

    def _node(self) -> NodeRow:
        busy = sum(
            (process.row.user_ticks or 0) + (process.row.system_ticks or 0) for process in self.processes
        )
        return NodeRow(
            ticks_per_second=100, cpus_online=64, user_ticks=busy, nice_ticks=0, system_ticks=0, idle_ticks=busy,
            iowait_ticks=0, irq_ticks=0, softirq_ticks=0, steal_ticks=0, memory_total=2**36, memory_available=2**35,
        )  # fmt: skip

    def _info(self, row: ProcessRow) -> ProcessInfoRow:
        return ProcessInfoRow(
            series_id=self.writer.ids.process(BOOT, row.pid, row.start_ticks), pid=row.pid,
            start_ticks=row.start_ticks, program="python3", command=f"python3 work{row.pid}.py",
            user_id=1000 + row.pid % 5, user_name=f"user{row.pid % 5}", cgroup="/user.slice/user-1000.slice",
        )  # fmt: skip

    def _job_info(self, pgid: int, members: list[Process]) -> JobInfoRow:
        start = members[0].row.start_ticks
        return JobInfoRow(
            series_id=self.writer.ids.job(BOOT, pgid, start), pgid=pgid, start_ticks=start, job_id=str(pgid),
            program="python3", command=f"python3 work{pgid}.py", user_id=1000 + pgid % 5, user_name=f"user{pgid % 5}",
        )  # fmt: skip

    def close(self) -> None:
        self.writer.close()


def make_archive(root: Path, samples: int, processes: int, *, seed: int = 1, start: datetime = START) -> Path:
    """An archive of the model load."""
    recorder = Recorder(root, processes, seed=seed, start=start)
    recorder.record(samples)
    recorder.close()
    return root
