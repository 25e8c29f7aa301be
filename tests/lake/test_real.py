"""A workload that really runs, recorded by a daemon that is restarted, against what the kernel says of it."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vmsonar_inspect.tables import open_tables

WORKLOAD = """
import os, sys, time
block = bytearray(os.urandom(1 << 20)) * 150
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))
time.sleep(1.5)
burn(1.5)
with open(sys.argv[1], "wb") as file:
    file.write(block[: 30 << 20])
    os.fsync(file.fileno())
burn(1.5)
print("done", flush=True)
time.sleep(600)
"""


def record(root: Path, seconds: int) -> None:
    command = [sys.executable, "-m", "vmsonar.daemon", "--archive", str(root), "--interval", "1s"]
    subprocess.run([*command, "--for", f"{seconds}s"], check=True, capture_output=True, timeout=60)


def truth(pid: int) -> tuple[float, int, int, int]:
    """CPU seconds, anonymous memory now, resident memory at most, and bytes written, from /proc."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    anonymous = int(re.search(r"RssAnon:\s+(\d+)", status)[1]) * 1024
    most = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
    written = int(re.search(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.M)[1])
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), anonymous, most, written


def test_a_real_job_comes_out_as_the_kernel_counted_it(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    record(archive, 1)
    work = subprocess.Popen(
        [sys.executable, "-c", WORKLOAD, str(tmp_path / "written")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        record(archive, 3)
        assert work.stdout is not None
        work.stdout.readline()
        time.sleep(0.1)
        record(archive, 2)
        cpu, memory, most, written = truth(work.pid)
    finally:
        work.kill()
        work.communicate()
    with open_tables([archive]) as tables:
        columns = "cpu_seconds, cpu_seconds_total, memory_peak, write_bytes, cores_peak"
        query = f"SELECT {columns} FROM job_usage WHERE pgid = ?"
        ((seconds, total, peak, wrote, cores),) = tables.sql(query, [work.pid]).fetchall()
    assert seconds == pytest.approx(cpu, rel=0.02, abs=0.02)
    assert total == pytest.approx(cpu, rel=0.02, abs=0.02)
    assert memory * 0.98 <= peak <= most * 1.02
    assert wrote == written
    assert cores <= 1.1
