"""Jobs with a known amount of memory, and what the kernel says about them to root (proc_pid_smaps_rollup(5))."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from vmsonar_archive.records import JobRow, Sample

from tests.collectors.process import work
from tests.collectors.process.recorder import Recorder
from tests.real import stranger
from vmsonar.config.schema import Config

MB = 1 << 20

_BEGIN = f"""
import ctypes, mmap, os, signal, subprocess, sys, threading, time
MB = {MB}
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
def area(size, flags=PRIVATE): return mmap.mmap(-1, size, flags=flags)
def touch(area, size=None, value=1):
    for page in range(0, size or len(area), 4096): area[page] = value
def say(): os.write(1, b"\\n")
def hear():
    if not os.read(0, 1): os._exit(0)
def forks(count, work):
    # Each tells through a pipe that it did its work.
    told, tell = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            work(tell)
            signal.pause()
    return told
def heard(told, count):
    for _ in range(count): os.read(told, 1)
"""
_END = "\nsay()\nwhile True: hear()\n"

PLAIN = "data = area(300 * MB); touch(data)"
THREADS = """
def fill(): datas.append(area(40 * MB)); touch(datas[-1]); time.sleep(1000)
datas = []
for _ in range(5): threading.Thread(target=fill, daemon=True).start()
while len(datas) < 5 or any(data[-4096] != 1 for data in datas): time.sleep(0.05)
"""
#: Forks that write 200 of 300 MB when a signal comes, and sleep again.
PREFORK = """
data = area(300 * MB); touch(data)
def worker(tell):
    def write(*_):
        touch(data, 200 * MB, 2)
        os.write(tell, b".")
    signal.signal(signal.SIGUSR1, write)
    os.write(tell, b".")
    while True: signal.pause()
pids = []
told, tell = os.pipe()
for _ in range(4):
    pids.append(os.fork())
    if pids[-1] == 0: worker(tell)
heard(told, 4)
say(); hear()
for pid in pids: os.kill(pid, signal.SIGUSR1)
heard(told, 4)
"""
#: The parent writes: the forks keep the old pages.
PARENT_WRITES = """
data = area(300 * MB); touch(data)
told = forks(3, lambda tell: os.write(tell, b"."))
heard(told, 3)
say(); hear()
touch(data, None, 2)
"""
_SEGMENT = (
    _BEGIN + "data = area(100 * MB, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS); touch(data); say(); signal.pause()"
)
OWN_SEGMENTS = f"""
child = {_SEGMENT!r}
for _ in range(4): subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE).stdout.read(1)
"""
ONE_SEGMENT = """
data = area(200 * MB, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS); touch(data)
told = forks(4, lambda tell: (touch(data), os.write(tell, b".")))
heard(told, 4)
"""
HUGE = "data = area(64 * MB, PRIVATE | 0x40000); touch(data)"
HUGE_SHARED = """
data = area(64 * MB, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000); touch(data)
told = forks(2, lambda tell: (touch(data), os.write(tell, b".")))
heard(told, 2)
"""
_CLONE = """
data = area(200 * MB); touch(data)
libc = ctypes.CDLL(None)
stack = area(MB)
top = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(stack)) + MB - 16)
def clone(flags): libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, flags | signal.SIGCHLD, None)
"""
CLONE_VM = _CLONE + "clone(0x100)\n"
#: The parent stands still until the child ends.
VFORK = _CLONE + "say()\nclone(0x4100)\n"
DEAD_MAIN = """
data = area(100 * MB); touch(data)
def live_on():
    time.sleep(0.2)
    say(); hear()
    touch(more := area(100 * MB)); keep.append(more)
    say()
    while True: hear()
keep = []
threading.Thread(target=live_on).start()
libc = ctypes.CDLL(None)
libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
SPIKE = """
data = area(100 * MB); touch(data)
say(); hear()
more = area(1500 * MB)
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(more)), 1, len(more))
time.sleep(0.5)
libc = ctypes.CDLL(None)
libc.madvise(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(more))), ctypes.c_size_t(len(more)), 4)
"""
#: The same in a child that comes and goes between two samples.
CHILD_SPIKE = """
data = area(100 * MB); touch(data)
say(); hear()
subprocess.run([sys.executable, "-c", "data = bytearray(b'1') * (500 << 20)"])
"""
MAPPED_FILE = """
import tempfile
file = tempfile.TemporaryFile(dir="/var/tmp")
for _ in range(200): file.write(os.urandom(MB))
file.flush()
data = mmap.mmap(file.fileno(), 200 * MB, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
for page in range(0, len(data), 4096): data[page]
touch(mine := area(50 * MB))
"""
POOL = """
import multiprocessing
data = area(150 * MB); touch(data)
def build(number):
    global mine
    mine = area(50 * MB); touch(mine)
    time.sleep(0.5)
    return os.getpid()
pool = multiprocessing.get_context("fork").Pool(4)
assert len(set(pool.map(build, range(4), chunksize=1))) == 4
"""


class Job:
    """A job that works in steps."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.pgid = process.pid

    def step(self) -> None:
        """Waits until it has done what it was told."""
        assert self._process.stdout is not None
        assert self._process.stdout.read(1) == b"\n"

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b".")
        self._process.stdin.flush()
        self.step()

    def members(self) -> list[int]:
        found = subprocess.run(["pgrep", "-g", str(self.pgid)], capture_output=True, check=True)
        return [int(pid) for pid in found.stdout.split()]

    def truth(self, *, pids: list[int] | None = None) -> int:
        """Anonymous, shared and huge pages of its members, each once, as the kernel tells root."""
        return sum(_own_share(pid) for pid in pids or self.members())


def _own_share(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s*(\d+) kB$", text, re.MULTILINE)}
    return sizes["Pss_Anon"] + sizes["Pss_Shmem"] + sizes["Private_Hugetlb"]


@contextmanager
def job(code: str) -> Iterator[Job]:
    """Runs it as root, so that nobody else may look at its pages."""
    with work.spawn(_BEGIN + code + _END, bufsize=0) as process:
        found = Job(process)
        try:
            found.step()
            yield found
        finally:
            os.killpg(process.pid, signal.SIGKILL)


class StrangeRecorder(Recorder):
    """A recorder that runs as another user and may not look at anybody's pages."""

    def __init__(self) -> None:
        self.samples = []
        found = stranger.python()
        assert found is not None
        self._process = subprocess.Popen(
            [found[0], "-P", "-m", __name__], env=found[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            user=stranger.STRANGER, group=stranger.STRANGER, extra_groups=(), cwd="/",
        )  # fmt: skip

    def sample(self, fresh: bool | None = None, later: int = 0) -> Sample:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % later)
        self._process.stdin.flush()
        sample = msgspec.json.decode(self._process.stdout.readline(), type=Sample)
        self.samples.append(sample)
        return sample

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def recorder(who: str) -> Iterator[Recorder]:
    """One that may see everything, or one of a user who is nobody here."""
    found = Recorder() if who == "root" else StrangeRecorder()
    try:
        yield found
    finally:
        found.close()


def bounds(row: JobRow) -> tuple[int, int]:
    """Between what the memory lies, as a reader has to understand the row."""
    assert row.memory is not None
    low = row.memory if row.memory_low is None else row.memory_low
    high = row.memory if row.memory_high is None else row.memory_high
    return low, high


def peak_bounds(row: JobRow) -> tuple[int, float]:
    assert row.memory_peak is not None
    low = row.memory_peak if row.memory_peak_low is None else row.memory_peak_low
    if row.memory_peak_source == "sampled":
        return low, float("inf")
    return low, row.memory_peak if row.memory_peak_high is None else row.memory_peak_high


def main() -> None:
    recorder = Recorder(Config())
    for line in sys.stdin:
        sys.stdout.buffer.write(msgspec.json.encode(recorder.sample(later=int(line))) + b"\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
