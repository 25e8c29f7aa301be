"""Control groups that stand still in a guest, and what their own files say, read and parsed apart from the recorder."""

import json
import re
from typing import Any

from tests.real import slurm
from tests.real.machine import Machine

# Meets the limit of its memory with what it writes, and that of its tasks; then it sleeps.
HOLDER = """
import os, sys, time
disk = os.open("/var/tmp/holder-" + sys.argv[1], os.O_CREAT | os.O_WRONLY)
for _ in range(16):
    os.write(disk, bytes(4 << 20))
    os.fsync(disk)
block = bytearray(40 << 20)
for at in range(0, len(block), 4096): block[at] = 1
while time.process_time() < 1: pass
try:
    while int(sys.argv[2]) and os.fork(): pass
except OSError: pass
open("/run/holder-" + sys.argv[1], "w").close()
time.sleep(600)
"""
SERVICE = "/system.slice/holder.service"
HELD = ("MemoryMax=90M", "MemorySwapMax=16M", "TasksMax=3", "IOAccounting=yes")
STEPS = ("extern", "batch", "0")

#: Of each field its file, what stands before its number, and its unit.
_FIELDS = {
    "cpu_time": ("cpu.stat", "usage_usec ", 1000),
    "cpu_user_time": ("cpu.stat", "user_usec ", 1000),
    "cpu_system_time": ("cpu.stat", "system_usec ", 1000),
    "periods": ("cpu.stat", "nr_periods ", 1),
    "throttled_periods": ("cpu.stat", "nr_throttled ", 1),
    "throttled_time": ("cpu.stat", "throttled_usec ", 1000),
    "cpu_quota": ("cpu.max", "", 1),
    "memory_used": ("memory.current", "", 1),
    "memory_peak": ("memory.peak", "", 1),
    "memory_limit": ("memory.max", "", 1),
    "memory_anonymous": ("memory.stat", "anon ", 1),
    "memory_file": ("memory.stat", "file ", 1),
    "memory_inactive_file": ("memory.stat", "inactive_file ", 1),
    "memory_shared": ("memory.stat", "shmem ", 1),
    "swap_used": ("memory.swap.current", "", 1),
    "swap_limit": ("memory.swap.max", "", 1),
    "memory_max_events": ("memory.events", "max ", 1),
    "oom_events": ("memory.events", "oom ", 1),
    "oom_kills": ("memory.events", "oom_kill ", 1),
    "processes": ("pids.current", "", 1),
    "processes_limit": ("pids.max", "", 1),
    "pids_max_events": ("pids.events", "max ", 1),
    "read_bytes": ("io.stat", ".* rbytes=", 1),
    "write_bytes": ("io.stat", ".* wbytes=", 1),
    **{
        f"{what}_{kind}_time": (f"{what}.pressure", f"{kind} .*total=", 1)
        for what in ("cpu", "memory", "io")
        for kind in ("some", "full")
    },
}
#: Those that the view of units has, too.
IN_VIEW = ("memory_peak", "memory_limit", "swap_limit", "processes", "cpu_time")
Figures = dict[str, int | None]


def hold(on: Machine) -> tuple[str, dict[str, Figures], dict[str, Any]]:
    """A service and a job of a real Slurm, frozen: the job's number, what each group counted, and a sample."""
    on.write("/root/holder.py", HOLDER)
    properties = [f"--property={each}" for each in HELD]
    on.run("systemd-run", "--unit=holder", *properties, "python3", "/root/holder.py", "service", "1")
    slurm.start_in(on)
    step = "srun python3 /root/holder.py step 0"
    job = on.run("sbatch", "--parsable", "--mem=80M", "--output=/dev/null", "--wrap", step).stdout.strip()
    on.wait("test -e /run/holder-service -a -e /run/holder-step")
    scope = slurm.scope_in(on)
    on.run("systemctl", "freeze", "holder", scope)
    whole = f"/system.slice/{scope}/job_{job}"
    return job, *_at_rest(on, [SERVICE, whole, *(f"{whole}/step_{step}" for step in STEPS)])


def release(on: Machine) -> None:
    """Ends all of it; it never runs again."""
    on.run("sh", "-c", f"echo 1 > /sys/fs/cgroup{SERVICE}/cgroup.kill")
    slurm.stop_in(on)


def _at_rest(on: Machine, paths: list[str]) -> tuple[dict[str, Figures], dict[str, Any]]:
    """What the groups' files say as well before as after a sample: the kernel takes a moment to sum up."""
    for _ in range(10):
        before = {path: _own(on, path) for path in paths}
        sample = json.loads(on.run("vmsonar", "sample").stdout)
        if before == {path: _own(on, path) for path in paths}:
            return before, sample
    raise AssertionError("frozen groups still count")


def _own(on: Machine, path: str) -> Figures:
    names = sorted({name for name, _, _ in _FIELDS.values()})
    every = 'cd "/sys/fs/cgroup$0" && tail -n +1 -- "$@" 2>/dev/null'
    told = on.run("sh", "-c", every, path, *names, check=False).stdout
    _, *parts = re.split(r"^==> (.+) <==\n", told, flags=re.MULTILINE)
    files = dict(zip(parts[::2], parts[1::2], strict=True))
    return {
        field: _number(name, files.get(name), begin, unit) for field, (name, begin, unit) in _FIELDS.items()
    }


def _number(name: str, text: str | None, begin: str, unit: int) -> int | None:
    """None without the file, or where it says `max`; I/O is that of all devices, and no device is none."""
    if text is None:
        return None
    found = re.findall(rf"^{begin}(\d+)\b", text, re.MULTILINE)
    return sum(map(int, found)) * unit if found or name == "io.stat" else None
