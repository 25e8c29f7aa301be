"""Real workloads whose truth is known: what each does, and how it is started so that a busy machine cannot hide it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Eight threads, or more where eight would find a core each.
THREADS = max(8, 3 * (os.cpu_count() or 1))

SPIN = "while True: pass"
CROWD = f"""
import hashlib, threading
def work():
    while True: hashlib.sha256(bytes(1 << 20))
for _ in range({THREADS}): threading.Thread(target=work).start()
"""
# One of four workers works.
RANKS = """
import os, time
for number in range(4):
    if os.fork() == 0:
        while number == 0: pass
        time.sleep(600)
time.sleep(600)
"""
# Two workers that share the work evenly, use a core and a third together, and keep nobody waiting.
EVEN = """
import os, time
os.fork()
while True:
    end = time.thread_time() + 0.065
    while time.thread_time() < end: pass
    time.sleep(0.035)
"""
# Four that write past the page cache and wait for each block.
WRITES = """
import mmap, os, sys
os.fork(), os.fork()
file = os.open(f"{sys.argv[1]}-{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
page = mmap.mmap(-1, 16 << 10)
while True: os.pwrite(file, page, 0)
"""
# Sixteen that read a file again and again for which their container has no room: half of it is filled.
HOG = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **words) {
    long kept = atol(words[2]), page = 4096;
    struct stat file;
    int opened = open(words[1], O_RDONLY);
    if (count != 3 || opened < 0 || fstat(opened, &file)) return 1;
    volatile char *room = malloc(kept);
    for (long at = 0; at < kept; at += page) room[at] = 'x';
    volatile char *view = mmap(0, file.st_size, PROT_READ, MAP_SHARED, opened, 0), sum = 0;
    fork(), fork(), fork(), fork();
    for (;;) sum += view[random() % (file.st_size / page) * page];
}
"""
SLEEP = "import time; time.sleep(600)"
FORKS = ["sh", "-c", "while :; do /bin/true; done"]


def python(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def prefer(pid: int) -> None:
    """Puts a session before all others where we may: what it asks for, it gets."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, -20)
    with contextlib.suppress(OSError):
        # With automatic groups a nice value counts within its session only (sched(7)).
        Path(f"/proc/{pid}/autogroup").write_text("-20")


def hurry(pid: int) -> None:
    """Lets what hardly computes run the moment it can: it is to wait for the disk, never for a core."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


@contextlib.contextmanager
def running(hurried: bool = False, **commands: list[str]) -> Iterator[dict[str, int]]:
    """Starts each in a session of its own; their process groups by name. All are killed at the end."""
    started = {name: _start(command, hurried) for name, command in commands.items()}
    try:
        yield {name: one.pid for name, one in started.items()}
    finally:
        for one in started.values():
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def _start(command: list[str], hurried: bool) -> subprocess.Popen[bytes]:
    # The session is set up before its work begins, so that its children inherit all of it.
    ready = ["sh", "-c", 'read -r go; exec "$@"', "sh", *command]
    process = subprocess.Popen(ready, start_new_session=True, stdin=subprocess.PIPE)
    prefer(process.pid)
    if hurried:
        hurry(process.pid)
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.close()
    return process


def write_cold(path: Path, size: int) -> None:
    """A file of that size whose pages are on the disk and not in memory."""
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compiled(source: str, program: Path) -> Path:
    """A program that needs nothing of the container it runs in."""
    command = ["gcc", "-O1", "-static", "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=source.encode(), check=True, timeout=120)
    return program
