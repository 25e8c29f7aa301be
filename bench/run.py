"""`vmsonar run`: what it adds to a command, beside GNU time and both resource-trackers where they are installed.

Installed by `apt-get install time`, `pip install resource-tracker` and `cargo install --locked resource-tracker`.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

from bench import Figure
from tests.real.meter import cost_per_second, family

_TRIES = 7
_SECONDS = 20.0
_SETTLE = 5.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_OURS = [sys.executable, "-m", "vmsonar", "run"]
_BUSY = [sys.executable, "-c", "while True: pass"]
# The trackers ask a cloud's metadata service who they are: they get no network, and no time is lost waiting for it.
_ALONE = ["unshare", "--net"] if os.geteuid() == 0 else []
# The Python package records in this process and its children while they run.
_PACKAGE = """
import subprocess, sys
from resource_tracker import ResourceTracker
tracker = ResourceTracker()
tracker.start()
subprocess.run(sys.argv[1:])
tracker.stop()
"""


def run() -> list[Figure]:
    """The figures of this area."""
    with TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "XDG_STATE_HOME": f"{home}/state"}
        plain = _wall(["true"])
        ours = _wall([*_OURS, "--", "true"])
        figures = [
            Figure("run -- true over true, median", ours - plain, "s", 0.35),
            Figure("run -- true, CPU of all its processes", _cpu([*_OURS, "--", "true"]), "s"),
            Figure("the same with --quiet", _wall([*_OURS, "--quiet", "--", "true"]) - plain, "s", 0.35),
            Figure(
                "a busy core recorded at 1 s", _share([*_OURS, "--quiet", "--", *_BUSY]), "% of a core", 0.5
            ),
        ]
        for name, line in _peers().items():
            figures.append(Figure(f"{name}: true over true", _wall([*line, "true"]) - plain, "s"))
            figures.append(Figure(f"{name}: true, CPU of all its processes", _cpu([*line, "true"]), "s"))
            figures.append(Figure(f"{name}: a busy core", _share([*line, *_BUSY]), "% of a core"))
        return figures


def _peers() -> dict[str, list[str]]:
    peers = {"GNU time": ["/usr/bin/time", "-v"]} if Path("/usr/bin/time").exists() else {}
    if find_spec("resource_tracker") is not None:
        peers["resource-tracker (Python)"] = [*_ALONE, sys.executable, "-c", _PACKAGE]
    if crate := shutil.which("resource-tracker"):
        peers["resource-tracker (Rust)"] = [*_ALONE, crate, "--interval", "1", "--"]
    return peers


def _wall(line: list[str]) -> float:
    return median(_once(line) for _ in range(_TRIES))


def _once(line: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def _cpu(line: list[str]) -> float:
    """What does not depend on who else runs: the seconds of everything that is started, orphans included."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    return median(_cpu_once(line) for _ in range(_TRIES))


def _cpu_once(line: list[str]) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    _once(line)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _share(line: list[str]) -> float:
    """Per cent of a core that everything but the command itself takes."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(line, **quiet) as process:  # type: ignore[call-overload]
        time.sleep(_SETTLE)
        busy = [pid for pid in family(process.pid) if _is_busy(pid)]
        share = cost_per_second([pid for pid in family(process.pid) if pid not in busy], _SECONDS) / 1e7
        for pid in busy:
            os.kill(pid, 15)
    return share


def _is_busy(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[:-1] == [os.fsencode(word) for word in _BUSY]
