"""What only a kernel of its own shows: limits in force, memory that runs out, real containers, a disk that is full."""

import json
import re
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.parts import requires
from tests.real.machine import Machine

pytestmark = requires("kernel_guest")
ARCHIVE = "/var/lib/vmsonar"
CGROUP = "/sys/fs/cgroup/system.slice/vmsonar.service"


@pytest.fixture(scope="module")
def on(machine: Machine) -> Machine:
    """Running, with a first sample on its disk."""
    machine.boot()
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


HUNGRY = "held = []\nwhile True: held.append(bytearray(b'x') * 2**24)"


def test_memory_that_runs_out_costs_the_work_and_not_the_recorder(on):
    pid = recorder(on)
    on.run("sh", "-c", "cp $(readlink -f /usr/bin/python3) /usr/bin/hungry")
    on.run("systemd-run", "--quiet", "--unit", "hungry", "/usr/bin/hungry", "-c", HUNGRY)
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


DOCKER = {"bridge": "none", "iptables": False, "storage-driver": "vfs"}
IMAGE = "mkdir -p /tmp/image/bin && cp /bin/busybox /tmp/image/bin/sh && tar -C /tmp/image -c . | docker import - box"


def test_real_containers_on_cgroup_v2_are_named_by_the_companion(on):
    on.write("/etc/docker/daemon.json", json.dumps(DOCKER))
    on.run("systemctl", "start", "docker")
    on.run("sh", "-c", IMAGE)
    run = "docker run -d --network none --memory 64m --name busy box sh -c 'while :; do :; done'"
    container = on.run("sh", "-c", run).stdout.strip()
    assert re.fullmatch("[0-9a-f]{64}", container)
    wait_for_more(on, 15)
    limit = on.read(f"/sys/fs/cgroup/system.slice/docker-{container}.scope/memory.max").strip()
    on.run("docker", "rm", "-f", "busy")
    wait_for_more(on)
    on.write("/root/container", f"{container} {limit}")
    assert on.run("systemctl", "is-active", "vmsonar-containers").stdout == "active\n"
    on.run("systemctl", "stop", "docker.socket", "docker")


def said(bundles: list[Path], command: str) -> str | None:
    """How the only job of that command ended, in words."""
    with opened(bundles, InspectionSettings()) as found:
        (job,) = [job for job in found.jobs if (job.command or "").split(" ")[0].endswith(command)]
    return job.ending.words


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


def test_what_happened_is_in_the_bundle_of_the_orderly_end(on, tmp_path: Path):
    """All that the tests before did to this machine."""
    # It is asked to end while the recorder is still there.
    lasting = (
        "systemd-run",
        "--quiet",
        "--unit",
        "lasting",
        "-p",
        "After=vmsonar.service vmsonar-accounts.service",
    )
    on.run("cp", "/bin/sleep", "/bin/lasting")
    on.run(*lasting, "/bin/lasting", "infinity")
    wait_for_more(on)
    on.power_off()
    container, limit = (on.copy_out("/root", tmp_path / "root") / "container").read_text().split()
    found = []
    bundles = sorted(on.copy_out("/srv/results", tmp_path / "results").iterdir())
    # Where the books come after the last sample, nothing tells the signal.
    assert said(bundles, "lasting").endswith(("SIGTERM at shutdown", "at the same time as the shutdown"))
    memory = "for lack of memory in the machine or a control group"
    assert said(bundles, "hungry").startswith(f"SIGKILL by the kernel, {memory}")
    for bundle in bundles:
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
    first = min(sample.boottime for sample in found)
    print(f"boot to the first sample: {first / 1e9:.1f} s")
