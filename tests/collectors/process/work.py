"""Work with a known end: each function starts one kind of job in a process group of its own."""

import subprocess
import sys
from pathlib import Path

_BUSY = """
import os, resource, sys, time
def burn(seconds):
    while time.process_time() < seconds: sum(range(2000))
def report(path):
    use = resource.getrusage(resource.RUSAGE_SELF)
    with open(path + ".tmp", "w") as file: file.write(str(use.ru_utime + use.ru_stime))
    os.rename(path + ".tmp", path)
"""

#: CPU seconds of each job, far more than the ticks that rounding may lose.
AMOUNT = 1.6


# The parent of one job, in a group of its own: it waits, and writes down what it was told (getrusage(2)).
_PARENT = """
import ctypes, os, resource, sys, time
folder, adopt, args = sys.argv[1], sys.argv[2] == "adopt", sys.argv[3:]
ctypes.CDLL(None).prctl(36, int(adopt), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
pid = os.posix_spawn(args[0], args, os.environ, setpgroup=0)
open(folder + "/pgid", "w").write(str(pid))
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
use = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(folder + "/told.tmp", "w") as file: file.write(str(use.ru_utime + use.ru_stime))
os.rename(folder + "/told.tmp", folder + "/told")
sys.stdin.read()
"""


class Work:
    """A job that runs under a parent of its own."""

    def __init__(self, folder: Path, args: list[str], adopts: bool = False) -> None:
        self.folder = folder
        launch = [sys.executable, "-c", _PARENT, str(folder), "adopt" if adopts else "leave", *args]
        self._parent = subprocess.Popen(launch, stdin=subprocess.PIPE, process_group=0)

    def is_done(self) -> bool:
        """Whether all of it ended and was waited for; the parent lives on."""
        return (self.folder / "told").exists()

    def close(self) -> None:
        self._parent.communicate()

    @property
    def pgid(self) -> int:
        return int((self.folder / "pgid").read_text())

    def told(self) -> float:
        """CPU seconds of the job as its parent was told them."""
        return float((self.folder / "told").read_text())

    def reported(self) -> float:
        """What the worker itself said at its end."""
        return float((self.folder / "used").read_text())


def one_thread(folder: Path) -> Work:
    return Work(folder, [sys.executable, "-c", f"{_BUSY}\nburn({AMOUNT})"])


def eight_threads(folder: Path) -> Work:
    code = f"""{_BUSY}
import hashlib, threading
def hash_on():
    block = b"x" * (1 << 20)
    while time.process_time() < {AMOUNT}: hashlib.sha256(block).digest()
threads = [threading.Thread(target=hash_on) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    return Work(folder, [sys.executable, "-c", code])


def shell_loop(folder: Path, children: int = 300) -> Work:
    """Children that live for a few milliseconds each."""
    count = "n=0; while [ $n -lt 2500 ]; do n=$((n+1)); done"
    loop = f"i=0; while [ $i -lt {children} ]; do i=$((i+1)); /bin/sh -c '{count}'; done"
    return Work(folder, ["/bin/sh", "-c", loop])


def job_control(folder: Path) -> Work:
    """An interactive shell on a terminal, which puts what it starts into a group of its own and outlives it."""
    script = folder / "busy.py"
    script.write_text(f"{_BUSY}\nopen(sys.argv[1] + '.pgid', 'w').write(str(os.getpgid(0)))\n")
    with script.open("a") as file:
        file.write(f"burn({AMOUNT})\nreport(sys.argv[1])\nos._exit(0)\n")
    shell = f"""
import os, pty, time
pid, terminal = pty.fork()
if pid == 0:
    os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], dict(os.environ, HISTFILE="/dev/null"))
open({str(folder / "shell")!r}, "w").write(str(pid))
os.write(terminal, b"{sys.executable} {script} {folder / "used"}\\n")
while not os.path.exists({str(folder / "used")!r}): time.sleep(0.05)
time.sleep(2.2)
os.write(terminal, b"exit\\n")
os.waitpid(pid, 0)
"""
    return Work(folder, [sys.executable, "-c", shell])


def double_fork(folder: Path) -> Work:
    """A worker whose parent ends at once: it is reaped by whoever adopts orphans. The leader lives for a sample."""
    code = f"""{_BUSY}
if os.fork() == 0:
    if os.fork() == 0:
        burn({AMOUNT})
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(1.2)
"""
    return Work(folder, [sys.executable, "-c", code], adopts=True)


def deaf_parent(folder: Path) -> Work:
    """A parent that ignores SIGCHLD: nobody is told what its child used."""
    code = f"""{_BUSY}
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    burn({AMOUNT})
    report({str(folder / "used")!r})
    os._exit(0)
while not os.path.exists({str(folder / "used")!r}): time.sleep(0.05)
time.sleep(2.2)
"""
    return Work(folder, [sys.executable, "-c", code])


def spawn(code: str, **options: object) -> subprocess.Popen[bytes]:
    """A Python program in a group of its own, whose standard input ends it or goes on with it."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
        **options,
    )
