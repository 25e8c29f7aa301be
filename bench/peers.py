"""Other recorders on the same load, once a second each: psutil, atop and PCP, where they are installed."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.real.meter import cost_per_second, family
from tests.real.ports import free_ports

#: Until a recorder has read everything for the first time.
SETTLE = 4.0

_PSUTIL = """
import psutil, sys, time
names = ["pid", "ppid", "name", "username", "cmdline", "cpu_times", "memory_info", "io_counters"]
names += ["num_threads", "status"]
while True:
    begin = time.monotonic()
    for process in psutil.process_iter(names): pass
    time.sleep(max(0, 1 - (time.monotonic() - begin)))
"""

_PMCD = """linux 60 dso linux_init /var/lib/pcp/pmdas/linux/pmda_linux.so
proc 3 pipe binary /var/lib/pcp/pmdas/proc/pmdaproc -d 3
"""

_METRICS = """
proc.psinfo.pid proc.psinfo.ppid proc.psinfo.pgrp proc.psinfo.session proc.psinfo.sname proc.psinfo.threads
proc.psinfo.utime proc.psinfo.stime proc.psinfo.cutime proc.psinfo.cstime proc.psinfo.minflt proc.psinfo.maj_flt
proc.psinfo.vsize proc.psinfo.rss proc.psinfo.start_time proc.psinfo.cmd proc.memory.share
proc.io.read_bytes proc.io.write_bytes proc.id.uid_nm
"""


def psutil_cost(seconds: float) -> float:
    """Nanoseconds of CPU per sample of psutil.process_iter with ten attributes."""
    with _running([sys.executable, "-c", _PSUTIL]) as pid:
        time.sleep(SETTLE)
        return cost_per_second([pid], seconds)


def atop_cost(seconds: float) -> float | None:
    """The same of atop, recording all processes into a file."""
    if shutil.which("atop") is None:
        return None
    with tempfile.TemporaryDirectory() as folder, _running(["atop", "-a", "-w", f"{folder}/raw", "1"]) as pid:
        time.sleep(SETTLE)
        return cost_per_second(family(pid), seconds)


def pcp_cost(seconds: float) -> float | None:
    """The same of PCP's collector, its agent for processes and its logger, with twenty metrics."""
    if not Path("/usr/lib/pcp/bin/pmcd").exists():
        return None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = str(free_ports(1)[0])
        pmcd = stack.enter_context(_running(_pmcd_command(folder, port), folder))
        time.sleep(SETTLE)
        logger = stack.enter_context(_running(_logger_command(folder, port), folder))
        time.sleep(SETTLE)
        return cost_per_second([*family(pmcd), *family(logger)], seconds)


def _pmcd_command(folder: Path, port: str) -> list[str]:
    (folder / "pmcd.conf").write_text(_PMCD)
    files = ["-c", f"{folder}/pmcd.conf", "-s", f"{folder}/pmcd.socket", "-l", f"{folder}/pmcd.log"]
    return ["/usr/lib/pcp/bin/pmcd", "-f", "-U", "root", "-p", port, *files]


def _logger_command(folder: Path, port: str) -> list[str]:
    (folder / "log.conf").write_text(f"log mandatory on 1 sec {{ {_METRICS} }}\n")
    host = f"local://{folder}/pmcd.socket"
    where = ["-c", f"{folder}/log.conf", "-l", f"{folder}/pmlogger.log", f"{folder}/archive"]
    return ["/usr/lib/pcp/bin/pmlogger", "-U", "root", "-h", host, "-t", "1sec", *where]


@contextmanager
def _running(command: list[str], folder: Path | None = None) -> Iterator[int]:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield process.pid
        finally:
            process.terminate()
