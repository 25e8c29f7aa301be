"""`python -m tests.archive.bundle.measured '[["verify", "x"]]'`: runs command lines here and says how each went."""

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from vmsonar.cli import run


def measure(arguments: list[str]) -> dict[str, object]:
    """Exit code, what was said, seconds of CPU (the machine may be busy) and peak memory in kB so far."""
    said = io.StringIO()
    begin = time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(arguments)
    seconds = time.process_time() - begin
    status = Path("/proc/self/status").read_text()
    # Not ru_maxrss: that one remembers the process we were forked from.
    memory = int(status.partition("VmHWM:")[2].split()[0])
    return {"code": int(code), "said": said.getvalue(), "seconds": seconds, "memory": memory}


if __name__ == "__main__":
    print(json.dumps([measure(arguments) for arguments in json.loads(sys.argv[1])]))
