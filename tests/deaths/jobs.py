"""Jobs that end in a known way: what is run, and what the kernel then says of it."""

import signal
import sys
from dataclasses import dataclass, field

#: Longer than a job must last to be one, and than a sample takes to see it.
LAST = "sleep 1.6"


@dataclass(frozen=True)
class Death:
    """One job, and how it ends."""

    command: list[str]
    code: int | None = None
    signal: int | None = None
    core: bool = False
    #: What `inspect` says of it, from the first to the last word.
    words: str = ""
    #: Signals that the test sends to it, and after how many seconds.
    sends: tuple[int, float] | None = None
    #: Members that fail: name and wait status.
    members: dict[str, int] = field(default_factory=dict)


def sh(text: str) -> list[str]:
    return ["bash", "-c", f"{LAST}; {text}"]


def python(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", f"import os, sys, time; time.sleep(1.6)\n{text}"]


_PIPE = "SIGPIPE, the kernel's signal to who writes where nobody reads"
_SIZE = "SIGXFSZ, the kernel's signal at a limit of file size"

#: Deaths that need nothing but the kernel.
PLAIN = {
    "exit_0": Death(sh("exit 0"), 0, words="exit 0"),
    "exit_7": Death(sh("exit 7"), 7, words="exit 7"),
    "no_core": Death(sh("ulimit -c 0; kill -SEGV $$"), signal=signal.SIGSEGV, words="SIGSEGV"),
    "core": Death(
        sh("ulimit -c unlimited; kill -SEGV $$"),
        signal=signal.SIGSEGV,
        core=True,
        words="SIGSEGV, core dumped",
    ),
    "killed": Death(
        ["sleep", "60"],
        signal=signal.SIGKILL,
        words="SIGKILL, sender unknown",
        sends=(signal.SIGKILL, 1.8),
    ),
    "asked": Death(
        ["sleep", "60"],
        signal=signal.SIGTERM,
        words="SIGTERM, sender unknown",
        sends=(signal.SIGTERM, 2.0),
    ),
    "pipe": Death(sh("exec yes"), signal=signal.SIGPIPE, words=_PIPE),
    "abort": Death(
        sh(f"ulimit -c 0; exec {sys.executable} -S -c 'import os; os.abort()'"),
        signal=signal.SIGABRT,
        words="SIGABRT",
    ),
    "traceback": Death(python("raise ValueError('of the test')"), 1, words="exit 1"),
    "file_size": Death(
        sh("ulimit -c 0 -f 8; exec dd if=/dev/zero of=large bs=4k"), signal=signal.SIGXFSZ, words=_SIZE
    ),
    "timeout": Death(["timeout", "2", "sleep", "60"], 124, members={"sleep": signal.SIGTERM}),
    # A shell that passes on how its child ended, as most scripts do.
    "through_a_shell": Death(
        sh("ulimit -c 0; bash -c 'kill -KILL $$'; exit $?"), 137, members={"bash": signal.SIGKILL}
    ),
    "leader_first": Death(["bash", "-c", f"sleep 6 & {LAST}; exit 3"], 3),
    "late": Death(sh("exit 5"), 5, words="exit 5"),
}

#: A process and, at once after it was waited for, another of the same number; both lead a group.
REUSE = """
import ctypes, os, time
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    time.sleep(2.2)
    os._exit(5)
print(pid, flush=True)
wanted, libc = ctypes.c_int(pid), ctypes.CDLL(None)
arguments = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(wanted), 1, 0)
os.waitpid(pid, 0)
again = libc.syscall(435, arguments, 88)  # clone3(2) with set_tid
if not again:
    os.setpgid(0, 0)
    os.execv("/bin/sh", ["sh", "-c", "sleep 2.2; exit 6"])
assert again == pid, again
os.waitpid(pid, 0)
"""

#: Fifty good ends and five bad ones that are waited for late, so that their names can be read; and fifty at once.
CROWD = """
import subprocess, sys, time
folder = sys.argv[1]
late = [subprocess.Popen([f"{folder}/deaths-late"]) for _ in range(50)]
late += [subprocess.Popen([f"{folder}/deaths-bad"]) for _ in range(5)]
time.sleep(1)
for one in late: one.wait()
for _ in range(50): subprocess.run([f"{folder}/deaths-soon"])
time.sleep(0.5)
"""

#: Writes until that fails, then tries for three seconds more before it gives up.
PATIENT = """
import os, time
begin = None
with open(sys.argv[1], "wb", buffering=0) as file:
    while begin is None or time.monotonic() < begin + 3:
        try:
            file.write(bytes(65536))
        except OSError as error:
            begin, problem = begin or time.monotonic(), error
            time.sleep(0.1)
raise problem
"""
NO_ROOM = "open(sys.argv[1], 'wb', buffering=0).write(bytes(65536))"
NO_INODES = "for n in range(10**6): open(f'{sys.argv[1]}/{n}', 'x').close()"
#: Opens and closes each time, as a remount asks for.
JOURNAL = """
while True:
    with open(sys.argv[1], "ab") as file: file.write(b"line\\n")
    time.sleep(0.02)
"""
#: Enters the group in the first argument once the second one exists, and takes all the memory it can get.
HUNGRY = """
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
held = [bytearray(b"x") * (1 << 20) for _ in range(1 << 10)]
"""

#: Enters the group likewise, and forks until that fails; its children all end well.
CROWDED = """
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
try:
    while os.fork(): pass
    time.sleep(0.3)
    os._exit(0)
except OSError:
    while True:
        try: os.wait()
        except ChildProcessError: break
    raise
"""

_WAIT = "until [ -e /gate/go ]; do sleep 0.2; done"
#: What runs in containers; a shell of busybox that cannot fork ends with 2.
IN_CONTAINERS = {
    "stopped": ("trap 'exit 9' TERM; while :; do sleep 0.2; done", ()),
    "stopped_hard": ("exec sleep 600", ()),
    "memory": (f"{_WAIT}; exec tail -c 200000000 /dev/zero", ("-m", "32m")),
    "outlived": (f"{_WAIT}; tail -c 200000000 /dev/zero; sleep 60", ("-m", "32m")),
    "processes": (f"{_WAIT}; for n in 1 2 3 4 5 6 7 8; do sleep 60 & done", ("--pids-limit", "5")),
    "processes_later": (
        (
            f"busybox mkfifo /tmp/f; exec 3<>/tmp/f; {_WAIT}; sh -c 'for n in 1 2 3 4 5 6 7 8; do sleep 60 & done';"
            " read -t 3 x <&3; exit 2"
        ),
        ("--pids-limit", "5"),
    ),
    "fine": (f"{_WAIT}; sleep 1; exit 0", ()),
}
