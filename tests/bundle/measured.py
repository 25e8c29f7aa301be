"""Runs command lines in this process and says how each went: `python -m tests.bundle.measured '[["verify", "x"]]'`."""

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from vmsonar.cli import run


def measure(arguments: list[str]) -> dict[str, object]:
    """Exit code, what was said, seconds, and the process's peak memory so far in kB (proc_pid_status(5))."""
    said = io.StringIO()
    begin = time.monotonic()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(arguments)
    seconds = time.monotonic() - begin
    status = Path("/proc/self/status").read_text()
    # Not ru_maxrss: that one remembers the process we were forked from.
    memory = int(status.partition("VmHWM:")[2].split()[0])
    return {"code": int(code), "said": said.getvalue(), "seconds": seconds, "memory": memory}


if __name__ == "__main__":
    print(json.dumps([measure(arguments) for arguments in json.loads(sys.argv[1])]))
