"""What many samples, many forks and many processes do to the collector: short here, long under `make chaos`."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.collectors.process.recorder import recording
from tests.collectors.process.storms import bounded, descriptors, storm
from tests.making.processes import load
from tests.real.meter import pss
from tests.real.wait import let_pass

pytestmark = pytest.mark.slow

MB = 1 << 20


def test_in_a_storm_of_forks_samples_stay_in_time_and_nothing_is_left_behind() -> None:
    before = descriptors()
    with recording() as recorder, storm(300):
        for _ in range(12):
            begin = time.monotonic()
            recorder.sample()
            assert time.monotonic() - begin < 5.0  # an interval, with slack for a busy machine
            assert bounded(recorder)
            time.sleep(0.1)
        table = recorder.collector.table
        live = len(table.by_name)
        assert len(table.by_pid) == live
        assert sum(len(children) for children in table.children.values()) == live
        assert recorder.ticks[-1].processes.keys() == table.by_pid.keys()
    assert descriptors() <= before + 2


def grown(samples: int, warm: int) -> int:
    """Bytes by which a process of its own grows from one number of samples to another, with processes coming."""
    code = f"""
import gc, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.collectors.process.recorder import Recorder
from tests.collectors.process.storms import bounded, storm
from tests.real.meter import pss
import os, time
recorder = Recorder()
with storm(100):
    for number in range({samples}):
        recorder.collect()
        if number == {warm}:
            gc.collect(); before = pss([os.getpid()])
        time.sleep(0.002)
    assert bounded(recorder)
gc.collect()
print(pss([os.getpid()]) - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout)


def test_memory_does_not_grow_with_samples() -> None:
    assert grown(600, 200) < MB


def anonymous(pid: int) -> int:
    """Bytes of its own, whoever else has the same libraries."""
    return int(Path(f"/proc/{pid}/status").read_text().split("RssAnon:")[1].split()[0]) << 10


def test_250_forks_a_second_do_not_grow_the_daemon(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vmsonar.daemon", "--archive", str(tmp_path / "a"), "--interval", "1s"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        try:
            let_pass(6)
            before = anonymous(daemon.pid)
            with storm(250):
                let_pass(25)
                after = anonymous(daemon.pid)
        finally:
            daemon.terminate()
    print(f"grew by {(after - before) / MB:.2f} MB")
    assert after - before < 2 * MB


@pytest.mark.chaos
def test_ten_thousand_samples_take_no_more_memory_than_a_thousand() -> None:
    assert grown(10_000, 1_000) < MB


@pytest.mark.chaos
def test_the_daemon_does_not_grow_over_ten_thousand_samples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vmsonar.daemon", "--archive", str(tmp_path / "a"), "--interval", "10ms"]
    with storm(50), subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        try:
            let_pass(20)
            early = pss([daemon.pid])
            let_pass(100)
            late = pss([daemon.pid])
        finally:
            daemon.terminate()
    assert late - early < MB


@pytest.mark.chaos
def test_ten_thousand_processes_are_survived() -> None:
    with load(asleep=10_000, light=0, busy=0), recording() as recorder:
        recorder.sample()
        for _ in range(5):
            begin = time.monotonic()
            sample = recorder.sample()
            assert time.monotonic() - begin < 5.0
            assert len(sample.process) > 10_000
        limit = int(Path("/proc/self/limits").read_text().split("Max open files")[1].split()[0])
        assert descriptors() < limit
