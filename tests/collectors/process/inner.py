"""Runs inside namespaces that a test made, and prints what the collector said there as JSON."""

import faulthandler
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.collectors.process.recorder import Recorder


def reuse() -> Recorder:
    """Two processes with the same pid, one after the other, within one interval."""
    burn = [sys.executable, "-c", "while True: pass"]
    recorder = Recorder()
    with subprocess.Popen(burn, process_group=0) as first:
        while time.clock_gettime(~first.pid << 3 | 2) < 0.25:
            time.sleep(0.02)
        recorder.sample()
        first.kill()
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
    with subprocess.Popen(["/bin/sleep", "60"], process_group=0) as second:
        assert second.pid == first.pid, (first.pid, second.pid)
        for _ in range(3):
            recorder.sample()
        second.kill()
    recorder.sample()
    return recorder


def hidden() -> Recorder:
    """An ordinary user where /proc hides other users' processes."""
    subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    recorder = Recorder()
    with subprocess.Popen(["/bin/sleep", "60"]) as own:
        try:
            for _ in range(3):
                recorder.sample(fresh=True)
        finally:
            own.kill()
    return recorder


def main() -> None:
    faulthandler.dump_traceback_later(20, exit=True)
    recorder = {"reuse": reuse, "hidden": hidden}[sys.argv[1]]()
    print(msgspec.json.encode(recorder.samples).decode())


if __name__ == "__main__":
    main()
