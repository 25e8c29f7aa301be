"""Ten thousand samples in one process: what it holds does not grow."""

import os
import signal
import time
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import last_sample

from tests.daemon.running import NODE, daemon

PROCESS = 'Entry("process", "vmsonar.collectors.process.collector")'
SAMPLES = 10_000


def pss(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def seq(archive):
    sample = last_sample(archive)
    return sample.seq if sample else 0


def wait_for_sample(archive, number, seconds):
    """Asks rarely: to find the last sample costs more than to take one."""
    deadline = time.monotonic() + seconds
    while seq(archive) < number:
        assert time.monotonic() < deadline
        time.sleep(5)


def child_of(pid):
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


# Fifty sleepers in a PID namespace of their own: what else runs on the machine does not count.
STAGE = 'for n in $(seq 50); do sleep 9999 & done; exec "$@"'
PREFIX = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", STAGE, "sh")


@pytest.mark.chaos
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to make a PID namespace")
def test_memory_and_descriptors_stay(tmp_path):
    with daemon(tmp_path / "a", "--interval=10ms", entries=(PROCESS, NODE), prefix=PREFIX) as process:
        pid = child_of(process.pid)
        wait_for_sample(tmp_path / "a", SAMPLES // 5, 300)
        before = pss(pid)
        wait_for_sample(tmp_path / "a", SAMPLES, 900)
        after, held = pss(pid), descriptors(pid)
        os.kill(pid, signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0, log
    assert after - before < 1024, f"{before} kB became {after} kB"
    assert held <= 5 * 51 + 64
