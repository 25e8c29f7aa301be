"""What only a kernel of its own shows: limits in force, memory that runs out, real containers, a disk that is full."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path
from vmsonar_inspect.facts.job_model import JobUse
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.lifecycle.held_groups import IN_VIEW, STEPS, Figures, hold, release
from tests.parts import requires
from tests.real.machine import Machine

pytestmark = requires("kernel_guest")
ARCHIVE = "/var/lib/vmsonar"
CGROUP = "/sys/fs/cgroup/system.slice/vmsonar.service"


@pytest.fixture(scope="module")
def on(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Running, with a first sample on its disk; the engine's containers are to lie on another one, with quotas."""
    disk = tmp_path_factory.mktemp("disks") / "xfs"
    subprocess.run(["truncate", "-s", "512M", disk], check=True)
    subprocess.run(["mkfs.xfs", "-q", disk], check=True)
    machine.change('find /usr/lib/uml/modules -name overlay.ko -exec cp {} . ";"')
    machine.boot(disk)
    machine.wait("systemctl is-active --quiet vmsonar && ls /var/lib/vmsonar/*/*/*/sample-*")
    return machine


def samples(machine: Machine) -> int:
    return int(json.loads(machine.run("vmsonar", "status", "--json", check=False).stdout)["samples"])


def wait_for_more(machine: Machine, count: int = 2) -> None:
    goal = samples(machine) + count
    machine.wait(
        f"vmsonar status --json | python3 -c 'import json, sys; exit(json.load(sys.stdin)[\"samples\"] < {goal})'"
    )


def recorder(machine: Machine) -> str:
    return machine.run("systemctl", "show", "-P", "MainPID", "vmsonar").stdout.strip()


def test_the_limits_of_the_unit_are_in_force(on):
    said = {name: on.read(f"{CGROUP}/{name}").strip() for name in ("memory.max", "pids.max", "cpu.weight")}
    assert said == {"memory.max": str(256 * 2**20), "pids.max": "64", "cpu.weight": "20"}
    # This kernel has neither BFQ's groups nor iocost, so that there is no file with the weight itself.
    assert "io" in on.read(f"{CGROUP}/cgroup.controllers").split()
    assert on.run("systemctl", "show", "-P", "IOWeight", "vmsonar").stdout == "20\n"
    pid = recorder(on)
    assert on.read(f"/proc/{pid}/oom_score_adj") == "-500\n"
    assert on.read(f"/proc/{pid}/stat").rsplit(") ", 1)[1].split()[16] == "5", "nice"
    assert on.read(f"/proc/{pid}/cgroup") == "0::/system.slice/vmsonar.service\n"


# As the recorder asks, and beside it what wait4(2) says of the same children.
ASK = """
import json, os, signal, threading, time
from vmsonar.collectors.process.accounts import Accounts
from vmsonar.config.schema import Accounts as Settings
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

def threads():
    made = [threading.Thread(target=burn, args=(0.5,)) for _ in range(2)]
    for thread in made: thread.start()
    for thread in made: thread.join()

def told(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(3)
    _, status, usage = os.wait4(pid, 0)
    return pid, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss

accounts = Accounts(Host(), Settings(), Clock())
accounts.take()
time.sleep(1)
works = lambda: burn(0.5), threads, lambda: bytearray(2**26), lambda: os.kill(os.getpid(), 9)
children = [told(work) for work in works]
rows, lost = accounts.take()
rows = {row.pid: row for row in rows}
found = [(child, rows[child[0]]) for child in children]
print(json.dumps({"lost": lost, "children": [
    {"status": child[1], "cpu": child[2], "peak": child[3] * 1024, "exit_status": row.exit_status,
     "found": (row.user_ns + row.system_ns) / 1e9, "low": row.cpu_low_ns / 1e9, "peak_rss": row.peak_rss,
     "threads": row.threads, "is_whole": row.is_whole, "is_process": row.is_process} for child, row in found]}))
"""


def test_accounts_of_an_older_kernel_by_a_unit_with_one_capability(on):
    on.wait("test -S /run/vmsonar/accounts.sock")
    assert on.run("systemctl", "is-active", "vmsonar-accounts").stdout == "active\n"
    pid = on.run("systemctl", "show", "-P", "MainPID", "vmsonar-accounts").stdout.strip()
    status = dict(
        line.split(":\t", 1) for line in on.read(f"/proc/{pid}/status").splitlines() if ":\t" in line
    )
    one = f"{1 << 12:016x}"  # CAP_NET_ADMIN of capabilities(7)
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {one}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert on.run("stat", "-c", "%U %a", "/run/vmsonar/accounts.sock").stdout == "vmsonar 660\n"
    answer = json.loads(on.run("/opt/vmsonar/bin/python", "-c", ASK).stdout)
    print(answer, on.run("uname", "-r").stdout)
    assert not answer["lost"]
    burner, threads, memory, _killed = answer["children"]
    assert burner["found"] == pytest.approx(burner["cpu"], rel=0.02)
    assert threads["found"] == pytest.approx(threads["cpu"], rel=0.02)
    assert (threads["threads"], threads["is_whole"]) == (3, True)
    assert memory["peak_rss"] == pytest.approx(memory["peak"], rel=0.02)
    assert [child["exit_status"] for child in answer["children"]] == [3 << 8, 3 << 8, 3 << 8, 9]
    assert all(child["is_process"] and child["low"] <= child["cpu"] + 1e-5 for child in answer["children"])


HUNGRY = "import time; time.sleep(3); held = []\nwhile True: held.append(bytearray(b'x') * 2**22)"
# They stay a while, so that their group does, too: systemd removes it at once.
FORKING = """
import os, time
time.sleep(3)
try:
    while os.fork(): pass
    os._exit(0)
except OSError:
    time.sleep(2.5)
    raise
"""
KEEPING = 'python3 -c "$0"; code=$?; sleep 2.5; exit $code'
BUSY = "import time\nwhile time.process_time() < 1: pass"
#: Units with a program of their own, and what the kernel allows them.
LIMITED = {
    "keeper": ("sh", KEEPING, (HUNGRY,), ("MemoryMax=48M", "MemorySwapMax=0", "OOMPolicy=continue")),
    "forker": ("python3", FORKING, (), ("TasksMax=5",)),
    "slowed": ("python3", BUSY, (), ("CPUQuota=20%",)),
}


def start(on: Machine, name: str, program: str, *words: str, properties: tuple[str, ...] = ()) -> None:
    """A unit that runs a copy of a program under its own name."""
    on.run("sh", "-c", f"cp $(readlink -f /usr/bin/{program}) /usr/bin/{name}")
    limits = [word for each in properties for word in ("-p", each)]
    on.run("systemd-run", "--quiet", "--unit", name, *limits, f"/usr/bin/{name}", *words)


def test_limits_of_a_units_own_group_are_met(on):
    for name, (program, code, more, properties) in LIMITED.items():
        start(on, name, program, "-c", code, *more, properties=properties)
    names = " ".join(LIMITED)
    on.wait(f"! systemctl is-active {names} | grep -qx 'active\\|activating'", 60)
    results = on.run("systemctl", "show", "-P", "Result", *LIMITED).stdout.split()
    assert results == ["exit-code", "exit-code", "success"]
    wait_for_more(on)


def test_memory_that_runs_out_costs_the_work_and_not_the_recorder(on):
    pid = recorder(on)
    start(on, "hungry", "python3", "-c", HUNGRY)
    on.wait("systemctl show -P Result hungry | grep -q oom-kill", 120)
    wait_for_more(on)
    assert recorder(on) == pid
    peak, limit = (int(on.read(f"{CGROUP}/memory.{name}")) for name in ("peak", "max"))
    print(f"recorder's memory.peak: {peak / 2**20:.0f} MB")
    assert peak < limit
    assert "oom_kill 0\n" in on.read(f"{CGROUP}/memory.events")


# All that is left for anybody but root.
FILL = "fallocate -l $(df --output=avail -B1 / | tail -1) /var/fill"


def test_a_full_disk_stops_writing_and_not_the_recorder(on):
    pid = recorder(on)
    on.run("sh", "-c", FILL)
    on.run("sleep", "8")
    assert recorder(on) == pid
    on.run("rm", "/var/fill")
    wait_for_more(on)
    assert recorder(on) == pid


DOCKER = {"bridge": "none", "iptables": False, "storage-driver": "overlay2"}
IMAGE = """
insmod /overlay.ko; mkdir -p /var/lib/docker; mount -o pquota /dev/ubdb /var/lib/docker; systemctl start docker
mkdir -p /tmp/image/bin; for name in sh dd sleep; do cp /bin/busybox /tmp/image/bin/$name; done
tar -C /tmp/image -c . | docker import - box
"""
ROOTED = "/var/lib/rooted"
HOG = "sleep 3; dd if=/dev/zero of=/hog bs=64k; code=$?; sleep 2; exit $code"


def test_real_containers_on_cgroup_v2_are_named_by_the_companion(on):
    on.write("/etc/docker/daemon.json", json.dumps(DOCKER))
    on.run("sh", "-euc", IMAGE)
    run = "docker run -d --network none --memory 64m --name busy box sh -c 'while :; do :; done'"
    container = on.run("sh", "-c", run).stdout.strip()
    assert re.fullmatch("[0-9a-f]{64}", container)
    wait_for_more(on, 15)
    limit = on.read(f"/sys/fs/cgroup/system.slice/docker-{container}.scope/memory.max").strip()
    on.run("docker", "rm", "-f", "busy")
    wait_for_more(on)
    assert on.run("systemctl", "is-active", "vmsonar-containers").stdout == "active\n"
    # Only root can ask a container's own file system for its room.
    on.run(
        "systemd-run",
        "--quiet",
        "--unit",
        "rooted",
        "vmsonar",
        "daemon",
        "--archive",
        ROOTED,
        "--interval",
        "1s",
    )
    on.wait(f"ls {ROOTED}/*/*/*/sample-*")
    quota = ("docker", "run", "-d", "--network", "none", "--storage-opt", "size=16m", "--name", "full", "box")
    full = on.run(*quota, "sh", "-c", HOG).stdout.strip()
    assert on.run("docker", "wait", "full").stdout == "1\n"
    assert "No space left on device" in on.run("docker", "logs", "full").stderr
    wait_for_more(on, 3)
    on.run("systemctl", "stop", "rooted")
    on.write("/root/containers", f"{container} {limit} {full}")
    on.run("systemctl", "stop", "docker.socket", "docker")


def test_services_and_batch_jobs_are_what_their_own_control_groups_say(on):
    job, own, sample = hold(on)
    rows = {row["cgroup"]: row for row in sample["cgroup"]}
    for path, figures in own.items():
        assert {name: rows[path].get(name) for name in figures} == figures, path
    service, whole, *steps = own
    assert [own[service][name] for name in ("memory_limit", "swap_limit", "processes_limit")] == [
        90 << 20,
        16 << 20,
        3,
    ]
    assert min(own[service][name] for name in ("memory_max_events", "pids_max_events", "write_bytes")) > 0
    assert (own[whole]["memory_limit"], own[whole]["memory_max_events"] > 0) == (80 << 20, True)
    assert own[whole]["cpu_time"] > 10**9
    # Slurm enables no controller that would count tasks or I/O, and this kernel no pressure.
    assert {own[path][name] for path in (whole, *steps) for name in ("processes", "write_bytes")} == {None}
    assert {own[path]["cpu_some_time"] for path in own} == {None}
    assert rows[service]["unit_name"] == "holder.service"
    assert rows["/system.slice/vmsonar.service"]["cgroup_kind"] == "service"
    ids = [(rows[path]["batch_job"], rows[path].get("batch_step")) for path in (whole, *steps)]
    assert ids == [(job, None), *((job, step) for step in STEPS)]
    infos = [row for row in sample["job_info"] if row["job_source"] == "slurm"]
    assert {(row["job_id"], row["batch_step"], row["batch_source"]) for row in infos} == {
        (job, step, "cgroup") for step in STEPS
    }
    assert "slurmstepd" not in {row["program"] for row in infos}
    wait_for_more(on)
    kept = {path: {name: figures[name] for name in IN_VIEW} for path, figures in own.items()}
    on.write("/root/held", json.dumps({"job": job, "own": kept}))
    release(on)


# Holds memory and cache, burns, and says what its own group has counted by then.
HOLD = """
import json, os, sys, time
group = "/sys/fs/cgroup" + open("/proc/self/cgroup").read().split("::")[1].strip()
with open(sys.argv[1], "wb") as file:
    file.write(os.urandom(20 * 2**20))
    os.fsync(file.fileno())
held = bytearray(100 * 2**20)
time.sleep(1)
def number(name, key=""):
    text = open(f"{group}/{name}").read()
    return int(text[text.index(key) + len(key):].split()[0])
print(json.dumps({"memory": number("memory.peak"), "cpu": number("cpu.stat", "usage_usec "),
                  "written": number("io.stat", "wbytes=")}))
"""


@pytest.mark.parametrize("who", [(), ("--property=Delegate=yes", "--property=User=nobody", "--uid=nobody")])
def test_a_command_in_a_scope_is_told_by_a_group_of_its_own(on, who):
    """Where vmsonar is alone in a group that it may divide, memory with cache and I/O are the kernel's own figures."""
    place = on.run("mktemp", "-d").stdout.strip()
    on.run("chmod", "777", place)
    ours = ("vmsonar", "run", "--quiet", "--archive", f"{place}/record", "--json", f"{place}/card", "--")
    work = ("python3", "-c", HOLD, f"{place}/file")
    told = json.loads(on.run("systemd-run", "--scope", "--quiet", *who, *ours, *work).stdout)
    card = json.loads(on.read(f"{place}/card"))
    assert (card["exit_code"], card["cpu_source"]) == (0, "cgroup")
    assert card["memory_charged_peak_bytes"] == pytest.approx(told["memory"], rel=0.02)
    assert card["memory_charged_peak_bytes"] > 120 * 2**20
    assert card["cpu_seconds"] * 1e6 == pytest.approx(told["cpu"], rel=0.1)  # it had still to end
    assert card["write_bytes"] == pytest.approx(told["written"], rel=0.02)
    assert card["memory_peak_low_bytes"] <= card["memory_peak_bytes"] <= card["memory_peak_high_bytes"]
    assert card["memory_peak_bytes"] == pytest.approx(105 * 2**20, rel=0.1)
    assert on.run("find", "/sys/fs/cgroup", "-name", "vmsonar-run-*").stdout == ""


def test_beside_others_a_command_has_a_group_without_memory(on):
    """Beside the shell a group may be made, but nobody is moved for it."""
    on.run("vmsonar", "run", "--quiet", "--archive", "/tmp/beside", "--json", "/tmp/card", "--", "sleep", "1")
    card = json.loads(on.read("/tmp/card"))
    assert (card["cpu_source"], card["memory_charged_peak_bytes"]) == ("cgroup", None)
    assert on.run("find", "/sys/fs/cgroup", "-name", "vmsonar-run-*").stdout == ""


WHEN = "(at the same time|less than a second after|[0-9] s after)"
#: How each program ended, in words.
SENTENCES = {
    "hungry": "SIGKILL by the kernel, for lack of memory in the machine or a control group",
    "keeper": (
        f"exit 137, which stands for SIGKILL, {WHEN} python3 in it ended: "
        "SIGKILL by the kernel, its control group's limit of 48 MiB was reached"
    ),
    "forker": f"exit 1, {WHEN} its control group's limit of 5 processes was reached",
    "slowed": "exit 0",
    "lasting": "SIGTERM at shutdown",
}
FULL = (
    f"exit 1, {WHEN} /var/lib/docker/overlay2/[0-9a-f]{{12}}/merged had (0 bytes|[0-9.]+ KiB) free"
    "(; it had just written 1[5-7] MiB)?"
)


@dataclass
class Ended:
    """A machine that is off after an orderly end, with all that the tests before did to it in its bundles."""

    container: str
    limit: str
    #: The container whose own quota was full.
    full: str
    bundles: list[Path]
    #: The archive of the recorder that was root.
    rooted: Path
    #: The batch job, and what its groups and a service's had counted.
    job: str
    own: dict[str, Figures]


@pytest.fixture(scope="module")
def ended(on: Machine, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    # It is asked to end while the recorder is still there.
    order = "After=vmsonar.service vmsonar-accounts.service"
    start(on, "lasting", "sleep", "infinity", properties=(order,))
    wait_for_more(on)
    on.power_off()
    place = tmp_path_factory.mktemp("ended")
    home = on.copy_out("/root", place / "root")
    noted, held = (home / "containers").read_text().split(), json.loads((home / "held").read_text())
    bundles = sorted(on.copy_out("/srv/results", place / "results").iterdir())
    rooted = on.copy_out(ROOTED, place / "rooted")
    return Ended(*noted, bundles, rooted, **held)


def jobs_of(*paths: Path) -> list[JobUse]:
    with opened(paths, InspectionSettings()) as found:
        return list(found.jobs)


def test_the_end_of_each_program_is_named(ended):
    words = {job.command: job.ending.words for job in jobs_of(*ended.bundles)}
    found = {name: words.get(name) or "" for name in SENTENCES}
    assert [name for name, told in found.items() if not re.fullmatch(SENTENCES[name], told)] == [], found


def test_what_was_killed_a_while_before_the_shutdown_is_not_its_work(ended):
    (job,) = [job for job in jobs_of(*ended.bundles) if job.container_id == ended.container]
    assert job.ending.words == "SIGKILL, sender unknown"


def test_a_containers_own_quota_is_named_with_its_end(ended):
    (job,) = [job for job in jobs_of(ended.rooted) if job.container_id == ended.full]
    assert re.fullmatch(FULL, job.ending.words), job.ending.words
    assert job.ending.cause == "disk_full"


def test_units_and_the_batch_job_are_told_as_their_groups_counted(ended):
    with opened(ended.bundles, InspectionSettings()) as found:
        units = {unit.cgroup: unit for unit in found.units}
        (job,) = [job for job in found.jobs if job.job_source == "slurm"]
        assert job.job == ended.job
    for path, own in ended.own.items():
        unit = units[path]
        told = (
            unit.memory_charged_peak_bytes,
            unit.memory_limit_bytes,
            unit.swap_limit_bytes,
            unit.tasks_peak,
        )
        assert told == tuple(own[name] for name in IN_VIEW[:4]), path
        # Not what it used before it was first seen.
        assert 0 <= (unit.cpu_seconds or 0) <= own["cpu_time"] / 1e9 + 0.2
    assert {(unit.batch_job, unit.batch_step) for unit in units.values() if unit.cgroup_kind == "slurm"} == {
        (ended.job, step) for step in (None, *STEPS)
    }
    assert {step.step for step in job.steps} == set(STEPS)


def test_what_happened_is_in_the_bundle_of_the_orderly_end(ended):
    """All that the tests before did to this machine."""
    container, limit, found = ended.container, ended.limit, []
    for bundle in ended.bundles:
        report = verify_path(bundle)
        assert report.ok, report.findings
        with open_archive(bundle) as archive:
            found += archive.samples()
    found.sort(key=lambda sample: sample.seq)
    events = [event for sample in found for event in sample.event]
    assert "oom_kill" in {event.event_type for event in events}
    assert {event.event_type for event in events if event.container_id == container} >= {
        "container_start",
        "container_die",
    }
    rows = [row for sample in found for row in sample.container if row.container_id == container]
    # Not every engine passes a limit on: what the kernel says is what counts. It is gone before the last look.
    assert (2, None if limit == "max" else int(limit)) in {
        (row.cgroup_version, row.memory_limit) for row in rows
    }
    assert max(row.cpu_time or 0 for row in rows) > 10**9
    assert "busy" in {info.name for sample in found for info in sample.container_info}
    lost = [gap.lost for sample in found for gap in sample.gap if gap.reason == "disk_full"]
    assert sum(number or 0 for number in lost) >= 1
    infos = [info for sample in found for info in sample.job_info]
    slowed = {info.pgid for info in infos if info.command == "slowed"}
    assert (
        max(row.throttled_time or 0 for sample in found for row in sample.job if row.pgid in slowed) > 10**8
    )
    first = min(sample.boottime for sample in found)
    print(f"boot to the first sample: {first / 1e9:.1f} s")
