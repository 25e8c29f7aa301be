"""Real processes asleep, light and busy, as many as asked for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.real.wait import let_pass

# One program for all: it forks what is asked for and waits for the end of its standard input.
_PROGRAM = r"""
import ctypes, os, signal, sys, threading, time
prctl = ctypes.CDLL(None).prctl
asleep, light, busy, threaded = map(int, sys.argv[1:5])
def sleeper():
    signal.pause()
def light_work():
    while True:
        for _ in range(200): pass
        time.sleep(0.2)
def busy_work():
    while True:
        for _ in range(100000): pass
        time.sleep(0.02)  # so that a small machine has something left for the recorders
def start(work, threads):
    pid = os.fork()
    if pid == 0:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nobody stays behind
        for _ in range(threads - 1): threading.Thread(target=time.sleep, args=(10**6,), daemon=True).start()
        work()
    return pid
works = [sleeper] * asleep + [light_work] * light + [busy_work] * busy
pids = [start(work, 4 if index < threaded else 1) for index, work in enumerate(works)]
sys.stdout.write("ready\n"); sys.stdout.flush()
sys.stdin.read()
for pid in pids: os.kill(pid, signal.SIGKILL)
for pid in pids: os.waitpid(pid, 0)
"""


@contextmanager
def load(asleep: int = 450, light: int = 50, busy: int = 3, threaded: int = 0) -> Iterator[None]:
    """That many processes, the first `threaded` of them with four threads each, until the block is left."""
    counts = [str(count) for count in (asleep, light, busy, threaded)]
    command = [sys.executable, "-S", "-E", "-c", _PROGRAM, *counts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            let_pass(0.5)
            yield
            process.communicate(timeout=30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
