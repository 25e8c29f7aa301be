"""`python -m tests.recorded.workloads FOLDER [--guest] [NAME…]` (as root): records the held set of workloads again.

Machines of half a minute or a minute: some on which nothing is wrong, seven with one problem each. The daemon records
this machine in a mount and a host name space of its own and keeps only the processes of two users, so that whatever
else runs here counts in the machine's totals and is no job. A recording that something else disturbs (cores that were
wanted by others, their containers, disks that were busy) is given up and made again when the machine is quieter.

With --guest they run in User-Mode Linux over this machine's files: a machine of one core that nobody else uses, put
before all others here. It has no containers, no pressure stall information, and tells of ends by taskstats alone.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.inspect.workloads import prefer
from tests.parts import DOCKER_SOCKET
from tests.real.docker import DOCKER, IMAGE
from tests.real.wait import let_pass, wait_until

ROOT = Path(__file__).parents[2]
VMSONAR = Path(sys.executable).with_name("vmsonar")
ANNA, BERT = 4001, 4002
USERS = f"root:x:0:0::/root:/bin/sh\nanna:x:{ANNA}:{ANNA}::/:/bin/sh\nbert:x:{BERT}:{BERT}::/:/bin/sh\n"
CONFIG = f"""\
filters: {{uids: {{keep: ["{ANNA}-{BERT}"]}}}}
containers: {{engine: docker, socket: {DOCKER_SOCKET}}}
lifeline: {{share: 20}}
"""
MIB = 2**20
#: A machine that nobody else wants, as pressure stall information says it: the share of time in which some task waits.
QUIET = 0.12
ATTEMPTS = 200

BURN = "while True: pass"
#: A fifth of the machine's memory.
HOLD = "import os, time; held = b'x' * (os.sysconf('SC_PHYS_PAGES') * 4096 // 5); open('ready', 'w'); time.sleep(600)"
COPY = "import os, time\nwhile True:\n data = os.urandom(4 << 20)\n open('copy', 'wb').write(data)\n time.sleep(1)"
FILL = "import time\nwith open('full/data', 'wb', 0) as f:\n while True:\n  f.write(bytes(1 << 20)); time.sleep(0.02)"
UNIT = "int f{n}(int a){{return a*{n}+(a>>3);}}\n"
SESSION = """\
set -m; ls /usr/bin; sleep 4; grep -q needle /etc/passwd; sleep 3; sort /etc/services > /dev/null; sleep 5
sh -c 'i=0; while [ $i -lt 900000 ]; do i=$((i+1)); done'; sleep 6; false; sleep 4; sleep 60 & sleep 5; kill %%; sleep 8
"""


@dataclass
class Place:
    """Where one workload runs and is recorded."""

    folder: Path
    stack: ExitStack
    #: Its jobs go before whatever else runs on this machine.
    is_first: bool = False

    def start(self, command: list[str], user: int = ANNA) -> None:
        """Starts a job of a user; it is killed at the end."""
        self.session(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command])

    def session(self, command: list[str]) -> None:
        quiet = subprocess.DEVNULL
        job = subprocess.Popen(command, start_new_session=True, stdin=quiet, stdout=quiet, stderr=quiet,
                               cwd=self.folder, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(self.folder)})  # fmt: skip
        if self.is_first:
            prefer(job.pid)
        # Whoever started it waits for it, as a shell would.
        threading.Thread(target=job.wait, daemon=True).start()
        self.stack.callback(self._end, job)

    @staticmethod
    def _end(job: "subprocess.Popen[bytes]") -> None:
        subprocess.run(["pkill", "-KILL", "-s", str(job.pid)], check=False)
        job.wait()

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def container(self, *arguments: str, user: int = ANNA) -> None:
        name = f"held-{os.getpid()}"
        fixed = ("--detach", "--name", name, "--network", "none", "--user", str(user))
        subprocess.run([DOCKER, "run", *fixed, *arguments], check=True, stdout=subprocess.DEVNULL)
        self.stack.callback(subprocess.run, [DOCKER, "rm", "--force", name], stdout=subprocess.DEVNULL)


def _build(place: Place) -> None:
    """One compiler after the other, each busy for a second or two."""
    for number in range(40):
        text = "".join(UNIT.format(n=f"{number + 1}{each:04}") for each in range(2600))
        (place.folder / f"part{number}.c").write_text(text)
    objects = " ".join(f"part{number}.o" for number in range(40))
    place.script("Makefile", f"all: {objects}\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n")
    place.start(["make"])


def _starved(place: Place) -> None:
    """One that computes beside eight of somebody else, all of one session, so that cores are shared evenly."""
    place.script("train.py", BURN)
    place.script("sweep.py", "import os\nfor _ in range(3): os.fork()\n" + BURN)
    as_user = "setpriv --reuid={0} --regid={0} --clear-groups python3 {1}"
    both = f"{as_user.format(BERT, 'sweep.py')} & {as_user.format(ANNA, 'train.py')}"
    place.session(["bash", "-c", f"set -m; {both}"])


def _many(place: Place) -> None:
    """A job of about a second after the other, each a process group of its own."""
    place.script("step.py", "import time\nwhile time.process_time() < 1.1: pass")
    place.start(["bash", "-c", "set -m; while :; do python3 step.py; done"], BERT)


def _crashing(place: Place) -> None:
    place.script("serve.py", "import time; time.sleep(1.5); raise SystemExit('no such table')")
    place.start(["bash", "-c", "set -m; while :; do python3 serve.py; sleep 1; done"])


def _full(place: Place) -> None:
    place.start(["python3", place.script("export.py", FILL)])


def _plain(name: str, script: str, user: int = ANNA) -> Callable[[Place], None]:
    return lambda place: place.start(["python3", place.script(name, script)], user)


@dataclass(frozen=True)
class Workload:
    """How it is started, for how long it is recorded, and whether the rest of the machine must be quiet."""

    start: Callable[[Place], None]
    seconds: int = 60
    needs_quiet: bool = True
    has_containers: bool = False
    #: What was there before the recording began.
    earlier: bool = False
    #: A disk of its own of so many MiB.
    disk: int = 0
    #: Whether it matters how processes ended: the guest tells that by its accounts alone.
    needs_ends: bool = False
    #: Goes before whatever else runs here, so that it may be recorded at any time.
    is_first: bool = False


def _fine_container(place: Place, user: int = ANNA) -> None:
    spin = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done"
    place.container(
        "--memory", "256m", "--memory-swap", "256m", "--cpus", "1", IMAGE, "sh", "-c", spin, user=user
    )


def _killed_container(place: Place) -> None:
    place.container(
        "--memory",
        "64m",
        "--memory-swap",
        "64m",
        IMAGE,
        "sh",
        "-c",
        "sleep 12; tail /dev/zero; sleep 1; exit 3",
    )


WORKLOADS: dict[str, Workload] = {
    "build": Workload(_build, seconds=35),
    "single": Workload(_plain("fit.py", BURN)),
    "container": Workload(_fine_container, has_containers=True),
    # Its processes are not recorded.
    "unseen_container": Workload(lambda place: _fine_container(place, user=0), has_containers=True),
    "shell": Workload(lambda place: place.start(["bash", "-c", SESSION]), seconds=45),
    "copy": Workload(_plain("backup.py", COPY)),
    "idle": Workload(lambda place: place.start(["sleep", "600"])),
    "starved": Workload(_starved, seconds=35, needs_quiet=False),
    "idle_memory": Workload(_plain("cache.py", HOLD), seconds=54, earlier=True),
    "killed_container": Workload(_killed_container, seconds=40, has_containers=True),
    "full_disk": Workload(_full, seconds=40, disk=64),
    "many_short_jobs": Workload(_many, seconds=48),
    "crash_loop": Workload(_crashing, seconds=30, needs_ends=True),
    # The same as `starved` on several cores, on a machine that tells of pressure.
    "starved_on_two": Workload(_starved, seconds=45, needs_quiet=False, is_first=True),
}  # fmt: skip


@contextmanager
def recorder(place: Place, workload: Workload) -> "Iterator[subprocess.Popen[bytes]]":
    """The daemon, on a machine that has a name, an id and users of ours."""
    (place.folder / "passwd").write_text(USERS)
    (place.folder / "machine-id").write_text("%032x\n" % (0xA0 + list(WORKLOADS.values()).index(workload)))
    less = "" if workload.has_containers else "collectors: {container: none}\n"
    less += "" if workload.needs_ends else "accounts: {use: none}\n"
    (place.folder / "config.yaml").write_text(CONFIG + less)
    full = place.folder / "full"
    full.mkdir()
    inside = (
        f"mount --bind {place.folder}/passwd /etc/passwd; mount --bind {place.folder}/machine-id /etc/machine-id; "
        f"hostname held.example; exec {VMSONAR} daemon --archive {place.folder}/archive "
        f"--config {place.folder}/config.yaml --interval 1s"
    )
    if workload.disk:
        options = f"size={workload.disk}m,mode=777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "held", str(full)], check=True)
        place.stack.callback(subprocess.run, ["umount", "-l", str(full)])
    daemon = subprocess.Popen(
        ["unshare", "--mount", "--uts", "sh", "-c", inside],
        stderr=(place.folder / "log").open("wb"),
        start_new_session=True,
    )
    if workload.is_first:
        prefer(daemon.pid)
    try:
        yield daemon
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)


def stalls() -> tuple[float, float]:
    """Seconds so far in which some task waited for a core, and for a disk; none in a guest, which is ours alone."""
    if not Path("/proc/pressure/cpu").exists():
        return 0.0, 0.0
    texts = (Path(f"/proc/pressure/{name}").read_text() for name in ("cpu", "io"))
    cpu, io = (int(text.split("total=")[1].split()[0]) / 1e6 for text in texts)
    return cpu, io


def is_quiet() -> bool:
    """Whether nobody else wants cores or disks just now."""
    before = stalls()
    let_pass(4)
    return all(now - then < 4 * QUIET for now, then in zip(stalls(), before, strict=True))


def kills() -> int:
    """Processes that the kernel killed for lack of memory so far."""
    words = Path("/proc/vmstat").read_text().split()
    return int(words[words.index("oom_kill") + 1])


def foreign_containers() -> set[str]:
    done = subprocess.run([DOCKER, "ps", "--quiet", "--filter", "status=running", "--format", "{{.Names}}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    return {name for name in done.stdout.split() if not name.startswith("held-")}


def is_disturbed(workload: Workload) -> bool:
    """Whether something else wants the machine while a workload runs; returns as soon as it does."""
    begin, waited, killed = time.monotonic(), stalls(), kills()
    limit = 1.5 * QUIET * workload.seconds if workload.needs_quiet else workload.seconds
    while time.monotonic() < begin + workload.seconds:
        let_pass(1)
        if workload.is_first:
            continue
        if any(now - then > limit for now, then in zip(stalls(), waited, strict=True)):
            return True
        if foreign_containers() if workload.has_containers else kills() > killed:
            return True
    return False


def record(name: str, target: Path) -> bool:
    """Records one workload into a bundle; False where something else disturbed it."""
    workload, folder = WORKLOADS[name], Path("/var/tmp") / f"held-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    while not workload.is_first and not is_quiet():
        let_pass(2)
    try:
        with ExitStack() as stack:
            place = Place(folder, stack, workload.is_first)
            if workload.earlier:
                workload.start(place)
                wait_until((folder / "ready").exists, 120, "the memory is held")
                let_pass(2)
            with recorder(place, workload):
                let_pass(2)
                if not workload.earlier:
                    workload.start(place)
                if is_disturbed(workload):
                    print(f"{name}: disturbed", flush=True)
                    return False
        # A workload that keeps all cores busy by itself does not show who else wanted them.
        if not workload.needs_quiet and not workload.is_first and not is_quiet():
            return False
        target.mkdir(parents=True, exist_ok=True)
        bundle = target / f"{name}.tar"
        bundle.unlink(missing_ok=True)
        hidden = ("--redact", "path,host")
        subprocess.run(
            [VMSONAR, "bundle", "--archive", folder / "archive", "-o", bundle, *hidden], check=True
        )
        return True
    finally:
        shutil.rmtree(folder, ignore_errors=True)


#: The guest's first process. The temporary folder is its own; the bundles go to this machine's files.
INIT = """#!/bin/sh
exec >> {log} 2>&1
mount -t proc proc /proc; mount -t sysfs sys /sys; ip link set lo up
for folder in /run /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done; mkdir /run/vmsonar
cd {root}; {python} -m vmsonar.companion.accounts --listen /run/vmsonar/accounts.sock &
{python} -m tests.recorded.workloads {target} {names}
sync; {python} -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)'
"""


def in_guest(target: Path, names: list[str]) -> None:
    """Records in a machine of its own; its memory is a file in /dev/shm."""
    target.mkdir(parents=True, exist_ok=True)
    log, init = target / "guest.log", target / "guest.sh"
    words = {"log": log, "root": ROOT, "python": sys.executable, "target": target, "names": " ".join(names)}
    init.write_text(INIT.format(**words))
    init.chmod(0o755)
    command = ["nice", "-n", "-20", "linux.uml", "mem=6G", "rootfstype=hostfs", "rootflags=/", "rw", f"init={init}",
               "con=null", "ssl=null", f"uml_dir={target}/", "umid=guest", "quiet"]  # fmt: skip
    environment = os.environ | {"TMPDIR": "/dev/shm"}
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, check=False)
    print(log.read_text())


def main(target: Path, names: list[str]) -> None:
    left = [name for name in names if name in WORKLOADS] or list(WORKLOADS)
    if "--guest" in names:
        in_guest(target.resolve(), [name for name in left if not WORKLOADS[name].has_containers])
        return
    for _ in range(ATTEMPTS):
        left = [name for name in left if not record(name, target)]
    print("not recorded: " + ", ".join(left) if left else "all recorded")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
