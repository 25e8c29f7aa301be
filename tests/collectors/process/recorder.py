"""Drives the process collector the way the daemon does, and remembers what it said."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from vmsonar_archive.records import EventRow, GapRow, JobInfoRow, JobRow, ProcessInfoRow, ProcessRow, Sample

from tests.real.wait import wait_until
from vmsonar.collectors.base import Rows, Setup, Tick
from vmsonar.collectors.process.collector import ProcessCollector
from vmsonar.collectors.process.jobs import Last
from vmsonar.config.schema import Config
from vmsonar.host.roots import Host

HERTZ = os.sysconf("SC_CLK_TCK")
COMPANION = "vmsonar.companion.accounts"
BOOT = "11111111-2222-3333-4444-555555555555"


class Recorder:
    """A collector and all samples that it gave."""

    def __init__(
        self,
        config: Config | None = None,
        host: Host | None = None,
        last: Last | None = None,
        descriptors: int | None = None,
    ) -> None:
        self.collector = ProcessCollector(Setup(config or Config(), host), last, descriptors)
        self.samples: list[Sample] = []
        self.ticks: list[Tick] = []

    def collect(self) -> None:
        """Has the collector work without keeping what it says."""
        boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self.collector.collect(Tick(datetime.now(UTC), boottime, BOOT, fresh=False))

    def sample(self, fresh: bool | None = None, later: int = 0, is_last: bool = False) -> Sample:
        """Takes a sample; the collector believes that so many seconds have passed."""
        boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + later * 10**9
        tick = Tick(datetime.now(UTC), boottime, BOOT, not self.samples if fresh is None else fresh, is_last)
        rows = self.collector.collect(tick)
        sample = as_sample(tick, rows, len(self.samples) + 1)
        self.samples.append(sample)
        self.ticks.append(tick)
        return sample

    def until(self, is_done: Callable[[], bool], interval: float = 1.0, limit: float = 300.0) -> None:
        """Samples at an interval until something has happened, and once after it."""
        begin = time.monotonic()
        deadline = begin
        while not is_done():
            assert time.monotonic() - begin < limit, "the work did not end in time"
            if time.monotonic() >= deadline:
                self.sample()
                deadline += interval
            time.sleep(0.02)
        self.sample()

    def job_rows(self, pgid: int) -> list[JobRow]:
        return [row for sample in self.samples for row in sample.job if row.pgid == pgid]

    def job_infos(self, pgid: int) -> list[JobInfoRow]:
        return [row for sample in self.samples for row in sample.job_info if row.pgid == pgid]

    def process_rows(self, pid: int) -> list[ProcessRow]:
        return [row for sample in self.samples for row in sample.process if row.pid == pid]

    def process_infos(self, pid: int) -> list[ProcessInfoRow]:
        return [row for sample in self.samples for row in sample.process_info if row.pid == pid]

    def ends(self, pgid: int) -> list[EventRow]:
        return [
            row for s in self.samples for row in s.event if row.event_type == "job_end" and row.pgid == pgid
        ]

    def gaps(self) -> list[GapRow]:
        return [row for sample in self.samples for row in sample.gap]

    def close(self) -> None:
        self.collector.close()


def as_sample(tick: Tick, rows: Rows, seq: int) -> Sample:
    """What a reader would get: decoded from the encoded rows."""
    head = {"time": tick.time, "seq": seq, "run": "r", "boot": tick.boot, "boottime": tick.boottime}
    encoded = msgspec.json.encode(head)[:-1]
    for kind, lines in rows.by_kind.items():
        encoded += b',"%b":[%b]' % (kind.encode(), b",".join(lines))
    return msgspec.json.decode(encoded + b"}", type=Sample)


@contextmanager
def recording(
    config: Config | None = None,
    host: Host | None = None,
    last: Last | None = None,
    descriptors: int | None = None,
) -> Iterator[Recorder]:
    recorder = Recorder(config, host, last, descriptors)
    try:
        yield recorder
    finally:
        recorder.close()


def seconds(row: JobRow | EventRow) -> float:
    """CPU seconds of a job."""
    return ((row.user_ticks or 0) + (row.system_ticks or 0)) / HERTZ


def bounds(row: JobRow) -> tuple[float, float]:
    """The least and the most CPU seconds that a job can have used."""
    low, high = row.cpu_ticks_low, row.cpu_ticks_high
    return (
        seconds(row) if low is None else low / HERTZ,
        seconds(row) if high is None else high / HERTZ,
    )


def assert_never_decreases(rows: list[JobRow]) -> None:
    counters = ("user_ticks", "system_ticks", "major_faults", "processes_seen", "processes_unseen")
    for name in (*counters, "read_bytes", "write_bytes"):
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        assert values == sorted(values), name


def write_script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@contextmanager
def accounts_companion(path: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The companion, once it listens there."""
    companion = subprocess.Popen([sys.executable, "-m", COMPANION, "--listen", str(path), *more])
    try:
        wait_until(path.exists, 30, "the companion's socket", every=0.01)
        yield companion
    finally:
        companion.terminate()
        companion.wait(30)
