"""Real workloads, recorded by the real daemon, get the verdicts they deserve."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vmsonar_inspect.inspection import Settings
from vmsonar_inspect.model import JobUse
from vmsonar_inspect.opening import opened
from vmsonar_inspect.rules import load_rules

from tests.daemon.running import NODE, daemon, samples, stop, wait_for

ENTRIES = (
    NODE,
    'Entry("pressure", "vmsonar.collectors.pressure")',
    'Entry("disk", "vmsonar.collectors.disk")',
    'Entry("process", "vmsonar.collectors.process")',
)
SAMPLES = 45

# The machine may be small and shared: what a core gives is not in our hand, who uses it and how is.
RULES = """
thin: {samples: 12, seconds: 3, coverage: 0.3}
rules:
  serial: {when: ["cpus >= 2", "cores_p95 <= 1.15", "cores_mean >= 0.08", "workers <= 1", "threads_mean <= 1.5"]}
  more_threads_than_cores:
    when: ["threads_mean >= 3 * cpus", "cores_mean >= 0.1 * cpus"]
    any: ["pressure_cpu_mean >= 0.05", "runnable_mean >= cpus"]
  imbalanced: {when: ["workers >= 3", "top_worker_share >= 0.6", "cores_mean >= 0.05"]}
  io_bound: {when: ["io_rate_mean >= 200000", "io_share >= 0.3", "cores_mean <= 0.8 * cpus"]}
  greedy: {about: job, title: much memory, when: ["memory_peak >= 300000000"], says: "took {memory_peak}"}
  fork_churn: {when: ["forks_per_second >= 20"]}
  hogging: null
"""

SPIN = "while True: pass"
THREADS = """
import hashlib, threading
def work():
    while True: hashlib.sha256(bytes(1 << 20))
for _ in range({threads}): threading.Thread(target=work).start()
"""
WORKERS = """
import os, time
for number in range(4):
    if os.fork() == 0:
        while number == 0: pass
        time.sleep(600)
time.sleep(600)
"""
DISK = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, bytes(1 << 20), 0)
    os.fdatasync(file)
"""
HOG = "import time; kept = bytearray(b'x') * (400 << 20); time.sleep(600)"
# One thread that uses what it gets and waits in between: nothing to be said about it.
CALM = """
import time
while True:
    end = time.monotonic() + 0.004
    while time.monotonic() < end: pass
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The rules that fired, for each workload and for the machine."""
    folder = tmp_path_factory.mktemp("real")
    archive = folder / "archive"
    threads = THREADS.format(threads=4 * (os.cpu_count() or 1))
    commands = {
        "serial": [sys.executable, "-c", SPIN],
        "threads": [sys.executable, "-c", threads],
        "imbalanced": [sys.executable, "-c", WORKERS],
        "disk": [sys.executable, "-c", DISK, str(folder / "data")],
        "hog": [sys.executable, "-c", HOG],
        "churn": ["sh", "-c", "while :; do /bin/true; done"],
        "calm": [sys.executable, "-c", CALM],
    }
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            started[name] = subprocess.Popen(command, start_new_session=True)
        time.sleep(0.5)
        with daemon(archive, "--interval=200ms", entries=ENTRIES) as process:
            wait_for(lambda: len(samples(archive)) >= SAMPLES, seconds=60)
            stop(process)
    finally:
        for one in started.values():
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()
    return _judged(folder, archive, started)


def _judged(folder: Path, archive: Path, started: dict[str, subprocess.Popen[bytes]]) -> dict[str, set[str]]:
    override = folder / "rules.yaml"
    override.write_text(RULES)
    names = {one.pid: name for name, one in started.items()}
    with opened([archive], Settings(rules=load_rules(override))) as inspection:
        machine, *advices = inspection.advice(next(iter(inspection.sources)))
        known: dict[str, JobUse] = {job.series_id: job for job in inspection.jobs}
    found = {"machine": {verdict.rule for verdict in machine.verdicts}}
    for advice in advices:
        name = names.get(known[advice.subject].pgid or 0)
        if name is not None:
            found[name] = {verdict.rule for verdict in advice.verdicts}
    return found


@pytest.mark.parametrize(
    ("workload", "rule"),
    [
        ("serial", "serial"),
        ("threads", "more_threads_than_cores"),
        ("imbalanced", "imbalanced"),
        ("disk", "io_bound"),
        ("hog", "greedy"),
        ("machine", "fork_churn"),
    ],
)
def test_a_real_workload_gets_its_verdict(workload: str, rule: str, jobs: dict[str, set[str]]) -> None:
    assert rule in jobs[workload]


def test_each_verdict_is_about_its_own_workload_and_not_about_idle_ones(jobs: dict[str, set[str]]) -> None:
    own = {
        "serial": "serial",
        "more_threads_than_cores": "threads",
        "imbalanced": "imbalanced",
        "greedy": "hog",
    }
    for rule, workload in own.items():
        fired = {name for name, rules in jobs.items() if rule in rules}
        assert workload in fired, rule
        # On a machine that others use too, one busy workload can come to look like another, but not like these.
        assert not fired & {"calm", "hog"} - {workload}, rule


def test_a_healthy_one_gets_none(jobs: dict[str, set[str]]) -> None:
    assert jobs["calm"] == set()
