"""The Slurm collector with a companion of its own, over stand-ins for Slurm's programs."""

import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import KINDS

from tests.collectors.slurm.programs import JOB, FakeSlurm
from tests.real.wait import wait_until
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.slurm.collector import SlurmCollector
from vmsonar.config.quantities import Duration
from vmsonar.config.schema import Config, Slurm
from vmsonar.host.roots import Host


class Recorder:
    def __init__(self, root, interval=0.2, timeout=5.0):
        self.slurm = FakeSlurm(root / "slurm")
        settings = Slurm(folder=str(root / "slurm"), interval=Duration(interval), timeout=Duration(timeout))
        self.collector = SlurmCollector(Setup(Config(slurm=settings), Host(run=root / "run")))
        self.found = {"batch_job": [], "cluster": [], "gap": []}
        self._now = 0

    def sample(self, fresh=False):
        self._now += 10**9
        began, used = time.monotonic(), time.thread_time()
        rows = self.collector.collect(
            Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=self._now, boot="b", fresh=fresh)
        )
        self.slowest, self.cpu = time.monotonic() - began, time.thread_time() - used
        got = {
            kind: [msgspec.json.decode(row, type=KINDS[kind]) for row in rows.by_kind.get(kind, [])]
            for kind in self.found
        }
        for kind, found in got.items():
            self.found[kind] += found
        return got

    def wait_for(self, kind):
        wait_until(lambda: self.sample()[kind], 30, f"rows of {kind}")


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path)
    yield made
    made.collector.close()


def test_rows_come_when_they_change(recorder):
    recorder.slurm.jobs(
        [JOB, JOB | {"JobIDRaw": "9", "JobID": "9", "State": "COMPLETED", "End": "1795033400"}]
    )
    recorder.wait_for("batch_job")
    assert {row.batch_job for row in recorder.found["batch_job"]} == {"7", "9"}
    assert len(recorder.found["cluster"]) == 3
    assert recorder.sample()["batch_job"] == []
    assert recorder.sample(fresh=True)["batch_job"] == []
    assert recorder.found["gap"] == []


def test_two_starts_of_one_job_come_both(recorder):
    recorder.slurm.jobs([JOB | {"State": "REQUEUED", "End": "1795033330"}, JOB | {"Start": "1795033340"}])
    recorder.wait_for("batch_job")
    assert [row.job_state for row in recorder.found["batch_job"]] == ["REQUEUED", "RUNNING"]


def test_a_controller_that_hangs_is_a_gap_row_and_no_sample_waits(tmp_path):
    recorder = Recorder(tmp_path, timeout=0.3)
    recorder.slurm.program("scontrol", "#!/bin/sh\nexec sleep 600\n")
    recorder.slurm.program("sinfo", "#!/bin/sh\nexec sleep 600\n")
    recorder.slurm.program("sacct", "#!/bin/sh\nexec sleep 600\n")
    slowest = 0.0
    end = time.monotonic() + 30
    while {gap.reason for gap in recorder.found["gap"]} != {
        "scontrol_timeout", "sinfo_timeout", "sacct_timeout",
    }:  # fmt: skip
        assert time.monotonic() < end
        recorder.sample()
        slowest = max(slowest, recorder.slowest)
        time.sleep(0.02)
    recorder.collector.close()
    assert slowest < 0.5
    assert len(recorder.found["gap"]) == 3  # each is said once


def test_without_slurm_one_gap_row_says_so(tmp_path):
    recorder = Recorder(tmp_path)
    for name in ("sacct", "sinfo"):
        (recorder.slurm.folder / name).unlink()
    recorder.sample()
    recorder.sample()
    assert [(gap.reason, gap.collector) for gap in recorder.found["gap"]] == [("slurm_absent", "slurm")]
    assert not recorder.collector.capabilities()[0].available
    recorder.collector.close()


def test_many_long_jobs_come_in_portions(recorder):
    """However long what Slurm tells: no sample comes near what the archive takes, and no line is lost."""
    hostile = "\x01" * 2000
    jobs = [JOB | {"JobIDRaw": str(at), "JobID": str(at)} for at in range(1, 5001)]
    long = [
        job | dict.fromkeys(("JobName", "User", "Account", "WCKey", "AllocTRES"), hostile)
        for job in jobs[:500]
    ]
    recorder.slurm.jobs(long + jobs[500:])
    most, largest = 0, 0
    end = time.monotonic() + 60
    while len(recorder.found["batch_job"]) < 5000 and time.monotonic() < end:
        rows = recorder.sample()["batch_job"]
        most, largest = max(most, len(rows)), max(largest, sum(len(encode_row(row)) for row in rows))
        time.sleep(0.01)
    assert len({row.batch_job for row in recorder.found["batch_job"]}) == 5000
    assert most <= 1000
    assert largest < 2 * 2**20
    assert recorder.found["gap"] == []


@pytest.mark.slow
def test_a_hundred_thousand_jobs_leave_samples_in_time_and_memory_bounded(recorder):
    """At the peak, of the companion as of the recorder; whoever takes a sample a second has them all in two minutes."""
    recorder.slurm.jobs([JOB | {"JobIDRaw": str(at), "JobID": str(at)} for at in range(1, 100_001)])
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # the highest begins anew
    began = highest(status)
    slowest, most, companion, count = 0.0, 0, 0, 0
    end = time.monotonic() + 120
    while count < 100_000 and time.monotonic() < end:
        rows = recorder.sample()["batch_job"]
        recorder.found["batch_job"].clear()
        count, most, slowest = count + len(rows), max(most, len(rows)), max(slowest, recorder.cpu)
        if recorder.collector.companion_pid:
            companion = max(companion, highest(Path(f"/proc/{recorder.collector.companion_pid}/status")))
        time.sleep(0.01)
    assert count == 100_000
    assert most <= 1000
    assert slowest < 0.25
    assert companion < 128 * 2**20
    assert highest(status) - began < 32 * 2**20
    assert recorder.found["gap"] == []


def highest(status):
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
