"""Workloads that really run, recorded by a daemon that is restarted, against a truth that the test itself knows."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from vmsonar_inspect.tables.database import Tables, open_tables

pytestmark = pytest.mark.slow

MB = 1 << 20
#: What the workload touches: at first, and on top of it later on.
FIRST, MORE = 200 * MB, 100 * MB
WRITTEN = 30 * MB

WORKLOAD = f"""
import mmap, os, sys, time
def touch(amount):
    area = mmap.mmap(-1, amount, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, amount, 4096): area[page] = 1
    return area
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))
first = touch({FIRST})
time.sleep(1.5)
burn(1.5)
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for _ in range({WRITTEN // MB}): os.write(file, bytes({MB}))
os.fsync(file)
burn(1.5)
print("done", flush=True)
sys.stdin.readline()
more = touch({MORE})
print("more", flush=True)
time.sleep(600)
"""


def record(root: Path, seconds: int) -> None:
    command = [sys.executable, "-m", "vmsonar.daemon", "--archive", str(root), "--interval", "1s"]
    subprocess.run([*command, "--for", f"{seconds}s"], check=True, capture_output=True, timeout=60)


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def written_bytes(pid: int) -> int:
    return int(re.search(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.M)[1])


@contextmanager
def idle_job() -> Iterator[int]:
    """An interpreter that touches nothing: what a job takes before it does anything."""
    code = "import mmap, os, sys, time; time.sleep(600)"
    idle = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        yield idle.pid
    finally:
        idle.kill()
        idle.wait()


def memory_before(tables: Tables, pgid: int, moment: float) -> int:
    query = "SELECT arg_max(memory, time) FROM job WHERE pgid = ? AND epoch(time) < ?"
    return int(tables.sql(query, [pgid, moment]).fetchone()[0])


def test_a_real_job_comes_out_as_it_was(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    record(archive, 1)
    work = subprocess.Popen(
        [sys.executable, "-c", WORKLOAD, str(tmp_path / "written")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert work.stdin is not None
    assert work.stdout is not None
    try:
        record(archive, 3)
        assert work.stdout.readline() == b"done\n"
        with idle_job() as idle:
            record(archive, 2)  # with FIRST
        between = time.time()
        work.stdin.write(b"\n")
        work.stdin.flush()
        assert work.stdout.readline() == b"more\n"
        record(archive, 1)  # with FIRST and MORE
        cpu, counted = cpu_seconds(work.pid), written_bytes(work.pid)
    finally:
        work.kill()
        work.communicate()
    with open_tables([archive]) as tables:
        columns = "cpu_seconds, cpu_seconds_total, memory_peak, write_bytes, cores_peak"
        query = f"SELECT {columns} FROM job_usage WHERE pgid = ?"
        ((seconds, total, peak, wrote, cores),) = tables.sql(query, [work.pid]).fetchall()
        first, nothing = (memory_before(tables, one, between) for one in (work.pid, idle))
    assert seconds == pytest.approx(cpu, rel=0.02, abs=0.02)
    assert total == pytest.approx(cpu, rel=0.02, abs=0.02)
    assert first - nothing == pytest.approx(FIRST, rel=0.02)
    assert peak - first == pytest.approx(MORE, rel=0.02)
    assert nothing < 0.1 * FIRST
    assert wrote == counted
    assert wrote in (0, pytest.approx(WRITTEN, rel=0.02))  # a file in memory is never written
    assert cores <= 1.1
