"""Units: services, sessions, Slurm jobs and pods by their control groups, in fixture trees of v1, v2 and hybrid."""

import shutil
from datetime import UTC, datetime

import msgspec
import pytest
from vmsonar_archive.records import CgroupRow

from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.container.units import UnitCollector
from vmsonar.config.schema import Cgroups, Config
from vmsonar.host.cgroups import membership
from vmsonar.host.roots import Host

JOB = "/system.slice/slurmstepd.scope/job_42"
STEP = f"{JOB}/step_0"
SERVICE = "/system.slice/cron.service"
V2_FILES = {
    "cpu.stat": "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n",
    "memory.current": "1048576\n",
    "memory.peak": "2097152\n",
    "memory.max": "max\n",
    "memory.swap.current": "4096\n",
    "memory.swap.max": "8192\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
    "pids.current": "2\n",
    "pids.max": "100\n",
    "pids.events": "max 7\n",
    "io.stat": "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2\n",
    "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\n",
}
V1_FILES = {
    "cpuacct": {"cpuacct.usage": "5000000000\n"},
    "memory": {
        "memory.usage_in_bytes": "1048576\n",
        "memory.failcnt": "3\n",
        "memory.limit_in_bytes": "4194304\n",
        "memory.memsw.limit_in_bytes": "6291456\n",
    },
    "pids": {"pids.current": "2\n"},
}


class Machine:
    """A machine whose control groups lie in a folder; processes are told as the process collector tells them."""

    def __init__(self, root, kinds=("slurm", "service")):
        self.host = Host(proc=root / "proc", sys=root / "sys")
        self.tree = root / "sys/fs/cgroup"
        self.tree.mkdir(parents=True)
        self.units = {}
        self.numbers = {}
        self._config = Config(cgroups=Cgroups(kinds=list(kinds)))
        self._collector = None
        self._now = 1_000_000_000_000

    def v2(self, path, **files):
        (self.tree / "cgroup.controllers").write_text("cpu io memory pids\n")
        folder = self.tree / path[1:]
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (V2_FILES | {name.replace("_", "."): text for name, text in files.items()}).items():
            (folder / name).write_text(text)

    def v1(self, path, controllers=("cpuacct", "memory", "pids")):
        for name in ("cpuacct", "memory", "pids"):
            (self.tree / name).mkdir(exist_ok=True)
            (self.tree / name / "tasks").write_text("")
        for name in controllers:
            folder = self.tree / name / path[1:]
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in V1_FILES[name].items():
                (folder / file).write_text(text)

    def process(self, pid, text):
        folder = self.host.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(text)
        for unit in membership(text.encode()).units:
            self.units.setdefault(unit, set()).add(pid)

    def ends(self, path):
        self.units = {unit: pids for unit, pids in self.units.items() if unit.path != path}

    def pass_minute(self):
        self._now += 60_000_000_000

    def sample(self):
        self._now += 1_000_000_000
        self._collector = self._collector or UnitCollector(Setup(self._config, self.host))
        tick = Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=self._now, boot="b", fresh=False)
        tick.units, tick.batch_numbers = self.units, self.numbers
        rows = self._collector.collect(tick).by_kind.get("cgroup", [])
        return [msgspec.json.decode(row, type=CgroupRow) for row in rows]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_service_of_v2_is_what_its_files_say(machine):
    machine.v2(SERVICE)
    machine.process(7, f"0::{SERVICE}\n")
    (row,) = machine.sample()
    assert (row.cgroup, row.cgroup_kind, row.unit_name, row.cgroup_version) == (
        SERVICE,
        "service",
        "cron.service",
        2,
    )
    assert (row.cpu_time, row.cpu_user_time, row.cpu_system_time) == (
        5_000_000_000,
        4_000_000_000,
        1_000_000_000,
    )
    assert (row.memory_used, row.memory_peak, row.memory_limit, row.memory_unlimited) == (
        2**20,
        2**21,
        None,
        True,
    )
    assert (row.swap_used, row.swap_limit, row.memory_max_events, row.oom_kills) == (4096, 8192, 3, 1)
    assert (row.processes, row.processes_limit, row.pids_max_events) == (2, 100, 7)
    assert (row.read_bytes, row.write_bytes, row.cpu_some_time) == (4096, 8192, 77)


def test_job_and_step_each_have_a_row(machine):
    machine.v2(STEP)
    machine.v2(JOB)
    machine.process(7, f"0::{STEP}/user/task_0\n")
    rows = {row.cgroup: row for row in machine.sample()}
    assert {(row.batch_job, row.batch_step, row.cgroup_kind) for row in rows.values()} == {
        ("42", "0", "slurm"),
        ("42", None, "slurm"),
    }


SLUID = "sKH47TZ5X9J000"


def test_a_job_that_is_named_by_its_sluid_gets_its_number_when_a_daemon_tells(machine):
    group = f"/system.slice/slurmstepd.scope/{SLUID}"
    machine.v2(group)
    machine.v2(f"{group}/step_extern")
    machine.process(7, f"0::{group}/step_extern/user/task_special\n")
    told = {(row.cgroup, row.cgroup_kind, row.batch_job, row.batch_step) for row in machine.sample()}
    assert told == {
        (group, "slurm", SLUID, None),
        (f"{group}/step_extern", "slurm", SLUID, "extern"),
    }
    machine.numbers = {SLUID: "42"}
    assert {(row.batch_job, row.batch_step) for row in machine.sample()} == {("42", None), ("42", "extern")}


def test_below_v1_each_controller_counts_where_the_process_is_in_the_group(machine):
    path = "/slurm_vm/uid_0/job_2"
    machine.v1(path)
    machine.v1("/elsewhere")
    machine.process(
        7, f"4:memory:{path}/step_0/task_0\n3:cpuacct:{path}/step_0/task_0\n2:pids:/elsewhere\n0::/\n"
    )
    machine.v1(f"{path}/step_0")
    rows = {row.cgroup: row for row in machine.sample()}
    job = rows[path]
    assert (job.cpu_time, job.memory_limit, job.memory_max_events, job.processes) == (
        5 * 10**9,
        2**22,
        3,
        None,
    )
    assert job.swap_limit == 2**21
    assert rows[f"{path}/step_0"].batch_step == "0"


def test_below_v1_a_daemon_in_some_groups_hides_none_of_the_others(machine):
    path = "/slurm_vm/uid_0/job_2"
    machine.v1(path)
    machine.process(5, f"4:memory:/\n3:cpuacct:/\n6:freezer:{path}\n")
    assert machine.sample() == []
    machine.process(7, f"4:memory:{path}/step_0\n3:cpuacct:/\n6:freezer:{path}\n")
    (row,) = (row for row in machine.sample() if row.cgroup == path)
    assert (row.cpu_time, row.memory_used) == (None, 2**20)
    machine.process(9, f"4:memory:{path}/step_0\n3:cpuacct:{path}/step_0\n6:freezer:{path}\n")
    (row,) = (row for row in machine.sample() if row.cgroup == path)
    assert (row.cpu_time, row.memory_used) == (5 * 10**9, 2**20)


def test_a_service_without_a_group_of_its_own_has_no_row(machine):
    machine.v1("/")
    machine.process(7, f"4:memory:/\n3:cpuacct:/\n1:name=systemd:{SERVICE}\n")
    assert machine.sample() == []
    assert machine.sample() == []


def test_accounting_that_is_switched_on_later_is_found(machine):
    machine.v1("/")
    machine.process(7, f"4:memory:/\n3:cpuacct:/\n1:name=systemd:{SERVICE}\n")
    for _ in range(10):
        assert machine.sample() == []
    machine.v1(SERVICE)
    machine.process(7, f"4:memory:{SERVICE}\n3:cpuacct:{SERVICE}\n1:name=systemd:{SERVICE}\n")
    assert machine.sample() == []
    machine.pass_minute()
    (row,) = machine.sample()
    assert row.memory_used == 2**20


def test_only_what_is_chosen_is_recorded(tmp_path):
    machine = Machine(tmp_path, kinds=("session",))
    session = "/user.slice/user-1000.slice/session-3.scope"
    for pid, path in enumerate((SERVICE, session), 7):
        machine.v2(path)
        machine.process(pid, f"0::{path}\n")
    assert [row.cgroup for row in machine.sample()] == [session]


def test_an_idle_unit_is_read_no_further_than_its_clock(machine):
    machine.v2(SERVICE)
    machine.process(7, f"0::{SERVICE}\n")
    for _ in range(6):
        machine.sample()
    machine.v2(SERVICE, memory_current="5\n")
    assert machine.sample()[0].memory_used == 2**20
    machine.v2(SERVICE, memory_current="5\n", cpu_stat="usage_usec 5000001\n")
    assert machine.sample()[0].memory_used == 5


def test_the_end_is_told_once_with_the_last_figures(machine):
    machine.v2(SERVICE)
    machine.process(7, f"0::{SERVICE}\n")
    machine.sample()
    machine.v2(SERVICE, cpu_stat="usage_usec 6000000\n")
    machine.ends(SERVICE)
    (row,) = machine.sample()
    assert (row.cpu_time, row.cpu_source, row.memory_used) == (6_000_000_000, "final", None)
    assert row.end_boottime is not None
    assert machine.sample() == []


def test_a_group_that_is_gone_leaves_its_last_reading_with_a_bound(machine, monkeypatch):
    # A kept descriptor of an ordinary file goes on answering; one of a control group says ENODEV.
    monkeypatch.setattr("resource.getrlimit", lambda _: (0, 0))
    machine.v2(SERVICE)
    machine.process(7, f"0::{SERVICE}\n")
    for _ in range(3):
        machine.sample()
    shutil.rmtree(machine.tree / SERVICE[1:])
    machine.ends(SERVICE)
    (row,) = machine.sample()
    assert (row.cpu_time, row.cpu_source) == (5_000_000_000, "reading")
    assert row.cpu_time_high > row.cpu_time


HOSTILE = [
    "/system.slice/\x1b[31mred\x1b[0m.service",
    "/system.slice/a b'\";$(x).service",
    "/system.slice/" + "é" * 100 + ".service",
]


@pytest.mark.parametrize("path", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_a_name(machine, path):
    machine.v2(path)
    machine.process(7, f"0::{path}\n")
    (row,) = machine.sample()
    assert row.cgroup == path


def test_a_path_that_leads_out_of_the_tree_is_not_followed(machine, tmp_path):
    machine.v2(SERVICE)
    outside = tmp_path / "sys/fs/outside.service"
    outside.mkdir()
    (outside / "cpu.stat").write_text("usage_usec 1\n")
    machine.process(7, "0::/../outside.service\n")
    assert machine.sample() == []
