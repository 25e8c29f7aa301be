"""A storm of short-lived processes, and the bound on what the collector keeps open meanwhile."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.collectors.process.recorder import Recorder
from tests.real.wait import wait_until

#: Descriptors per process at most: stat, statm, io, cgroup; and what is not of a process.
PER_PROCESS, CONSTANT = 4, 64


@contextmanager
def storm(per_second: int) -> Iterator[None]:
    """Short-lived children, so many a second."""
    code = f"""
import os, time
begin, count = time.monotonic(), 0
while True:
    while count < (time.monotonic() - begin) * {per_second}:
        pid = os.fork()
        if pid == 0:
            time.sleep(0.05) if count % 4 else None
            os._exit(0)
        count += 1
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
    time.sleep(0.01)
"""
    with subprocess.Popen([sys.executable, "-S", "-c", code], process_group=0) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_until(children.read_text, 20, "the first forks", every=0.01)
            yield
        finally:
            process.kill()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def bounded(recorder: Recorder) -> bool:
    return descriptors() <= PER_PROCESS * len(recorder.collector.table.by_pid) + CONSTANT
