"""The Sonar dialect: every field by hand, and every message by rules that share no code with the converter."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from vmsonar_archive.dialect.history import History
from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.records import (
    Card,
    CpuRow,
    DiskRow,
    GapRow,
    GpuProcessRow,
    GpuRow,
    JobInfoRow,
    NodeRow,
    ProcessInfoRow,
    ProcessRow,
    Sample,
    SysInfo,
)

from tests.archive.dialect.sonar_rules import validate

BOOTED = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
FIRST = BOOTED + timedelta(seconds=1000.4)
BOOT = "5c6e2a3d-8f3b-4d5e-9a1c-2b7f0e6d4c31"
EPOCH = int(BOOTED.timestamp()) - 1577836800
KB = 1024


def sysinfo(**fields: object) -> SysInfo:
    return SysInfo(
        **{
            "time": FIRST, "seq": 1, "run": "r", "boot": BOOT, "boottime": 1, "hostname_full": "vm.example.org",
            "hostname_short": "vm", "kernel_name": "Linux", "kernel_release": "6.1.0", "architecture": "x86_64",
            "cpu_model": "EPYC", "cpus": 4, "sockets": 1, "cores_per_socket": 2, "threads_per_core": 2,
            "numa_nodes": 1, "numa_distances": [[10]], "memory_total": 8 * 2**30, "ticks_per_second": 100,
            "booted": BOOTED, **fields,
        }
    )  # fmt: skip


def sample(number: int = 0, **rows: object) -> Sample:
    boottime = 1000_400_000_000 + number * 10**10
    return Sample(
        time=FIRST + timedelta(seconds=10 * number), seq=2 + number, run="r", boot=BOOT, boottime=boottime, **rows
    )  # fmt: skip


def process(**fields: object) -> ProcessRow:
    return ProcessRow(**{"pid": 42, "start_ticks": 50_040, "pgid": 40, **fields})


def info(**fields: object) -> ProcessInfoRow:
    start = {"series_id": "s", "pid": 42, "start_ticks": 50_040}
    return ProcessInfoRow(**{**start, "user_name": "alice", "program": "python3", **fields})


@pytest.fixture
def sonar() -> Sonar:
    dialect = Sonar("c.example.org", "fallback")
    dialect.sysinfo(sysinfo())
    return dialect


def told(dialect: Sonar, record: Sample) -> dict:
    return validate(envelope("sample", dialect.sample(record)))


def test_a_heartbeat_is_the_least_a_consumer_takes(sonar: Sonar) -> None:
    assert told(sonar, sample()) == {
        "time": "2026-11-16T12:16:40Z", "cluster": "c.example.org", "node": "vm.example.org",
        "system": {"boot": "2026-11-16T12:00:00Z"},
    }  # fmt: skip


def test_the_node(sonar: Sonar) -> None:
    node = NodeRow(load1=0.5, load5=1.25, load15=2, tasks_runnable=3, tasks_existing=200, ticks_per_second=100,
                   memory_total=8 * 2**30, memory_available=2 * 2**30 + 1)  # fmt: skip
    cpus = [CpuRow(cpu_index=i, user_ticks=1000, nice_ticks=99, system_ticks=300, idle_ticks=9999, iowait_ticks=50,
                   irq_ticks=1, softirq_ticks=250, steal_ticks=7) for i in (0, 2)]  # fmt: skip
    disk = DiskRow(device="vda", device_major=254, device_minor=0, **dict(zip(
        ("reads", "reads_merged", "read_sectors", "read_time", "writes", "writes_merged", "write_sectors",
         "write_time", "in_flight", "busy_time", "queue_time"), range(1, 12), strict=True)))  # fmt: skip
    assert told(sonar, sample(node=[node], cpu=cpus, disk=[disk]))["system"] == {
        "boot": "2026-11-16T12:00:00Z", "cpus": [16, 0, 16, 0], "used_memory": 6 * 2**20 - 1,
        "load1": 0.5, "load5": 1.25, "load15": 2.0, "runnable_entities": 3, "existing_entities": 200,
        "disks": [{"name": "vda", "major": 254, "minor": 0, "stats": list(range(1, 12))}],
    }  # fmt: skip


def test_a_process(sonar: Sonar) -> None:
    row = process(ppid=7, state="S", threads=5, user_ticks=20_000, system_ticks=5_050, child_user_ticks=99,
                  child_system_ticks=2, virtual=9 * 2**30, resident=100 * KB, shared=30 * KB + 1, data_stack=77 * KB,
                  read_bytes=1025, write_bytes=1024, cancelled_bytes=1, read_chars=5, write_chars=6)  # fmt: skip
    jobs = told(sonar, sample(process=[row], process_info=[info(container_id="c" * 64)]))["jobs"]
    assert jobs == [{"job": 40, "user": "alice", "epoch": EPOCH, "processes": [{
        "pid": 42, "ppid": 7, "cmd": "python3", "resident_memory": 69, "virtual_memory": 77, "num_threads": 4,
        "cpu_avg": 50.1, "cpu_time": 251, "data_read": 2, "data_written": 1, "data_cancelled": 1,
        "in_container": True}]}]  # fmt: skip


def test_recent_use_is_that_since_the_sample_before(sonar: Sonar) -> None:
    sonar.sample(sample(process=[process(user_ticks=1000)], process_info=[info()]))
    young = process(pid=43, start_ticks=100_940, user_ticks=50)
    infos = [info(pid=43, start_ticks=100_940)]
    (job,) = told(sonar, sample(1, process=[process(user_ticks=1500), young], process_info=infos))["jobs"]
    assert [entry["cpu_util"] for entry in job["processes"]] == [50.0, 50.0]
    again = told(sonar, sample(2, process=[process(pid=42, start_ticks=1, user_ticks=900)]))["jobs"][0]
    assert "cpu_util" not in again["processes"][0], "another process of that number has no sample before"


def test_users_zombies_and_jobs(sonar: Sonar) -> None:
    rows = [process(pid=pid, pgid=pgid, state=state) for pid, pgid, state in
            ((1, 10, "Z"), (2, 10, "S"), (3, 20, "S"), (4, 21, "S"), (5, None, "S"))]  # fmt: skip
    infos = [info(pid=1), info(pid=2, user_name=None, user_id=1234), info(pid=3), info(pid=4)]
    batch = [
        JobInfoRow(series_id="j", pgid=pgid, start_ticks=1, job_id="777", job_source="slurm")
        for pgid in (20, 21)
    ]
    found = told(sonar, sample(process=rows, process_info=infos, job_info=batch))["jobs"]
    brief = [(job["job"], job["user"], job["epoch"], [p["pid"] for p in job["processes"]]) for job in found]
    assert brief == [
        (10, "alice", EPOCH, [1]), (10, "_user_1234", EPOCH, [2]), (777, "alice", 0, [3, 4]),
        (5, "_user_unknown", EPOCH, [5]),
    ]  # fmt: skip
    assert found[0]["processes"][0]["cmd"] == "python3 <defunct>"


def test_gpus_and_the_processes_on_them(sonar: Sonar) -> None:
    sonar.sysinfo(sysinfo(seq=2, cards=[Card(gpu_uuid="GPU-1", gpu_index=3, memory=16 * 2**30)]))
    rows = [
        GpuRow(gpu_uuid="GPU-1", gpu_util=71.6, memory_util=12, memory_used=4 * 2**30, power=99.5, power_limit=300,
               temperature=-3.2, fan=30, performance_state=0, compute_mode="default", core_clock=1000,
               memory_clock=2000),
        GpuRow(gpu_uuid="GPU-2", error="gpu_is_lost"),
    ]  # fmt: skip
    use = GpuProcessRow(gpu_uuid="GPU-1", pid=42, gpu_util=70.5, memory_util=9, memory_used=2**30)
    found = told(sonar, sample(1, gpu=rows, gpu_process=[use], process=[process()], process_info=[info()]))
    assert found["system"]["gpus"] == [
        {"index": 3, "uuid": "GPU-1", "ce_util": 72, "memory_util": 25, "memory": 4 * 2**20, "power": 100,
         "power_limit": 300, "temperature": -3, "fan": 30, "performance_state": 2, "compute_mode": "default",
         "ce_clock": 1000, "memory_clock": 2000},
        {"index": 0, "uuid": "GPU-2", "failing": 1},
    ]  # fmt: skip
    assert found["jobs"][0]["processes"][0]["gpus"] == [
        {"index": 3, "uuid": "GPU-1", "gpu_util": 70.5, "gpu_memory": 2**20, "gpu_memory_util": 6.2}
    ]


def test_a_gap_is_a_recoverable_error(sonar: Sonar) -> None:
    (error,) = told(sonar, sample(gap=[GapRow(collector="gpu", reason="timeout", detail="NVML hangs")]))[
        "errors"
    ]
    assert error == {"time": "2026-11-16T12:16:40Z", "cluster": "c.example.org", "node": "vm.example.org",
                     "detail": "gpu: timeout: NVML hangs"}  # fmt: skip


def test_sysinfo() -> None:
    dialect = Sonar("c.example.org", "fallback", "short")
    card = Card(gpu_uuid="GPU-1", gpu_index=0, vendor="nvidia", model="A100", bus_address="00:01.0", memory=2**30,
                power_limit=300.4, power_limit_max=400, core_clock_max=1410, driver="535")  # fmt: skip
    assert validate(envelope("sysinfo", dialect.sysinfo(sysinfo(cards=[card])))) == {
        "time": "2026-11-16T12:16:40Z", "cluster": "c.example.org", "node": "vm", "os_name": "Linux",
        "os_release": "6.1.0", "architecture": "x86_64", "numa_nodes": 1, "sockets": 1, "cores_per_socket": 2,
        "threads_per_core": 2, "cpu_model": "EPYC", "memory": 8 * 2**20, "distances": [[10]],
        "cards": [{"index": 0, "uuid": "GPU-1", "address": "00:01.0", "manufacturer": "NVIDIA", "model": "A100",
                   "driver": "535", "memory": 2**20, "power_limit": 300, "max_power_limit": 400,
                   "max_ce_clock": 1410}],
    }  # fmt: skip


def test_an_almost_empty_sysinfo_is_still_taken() -> None:
    bare = SysInfo(time=FIRST, seq=1, run="r", boot=BOOT, boottime=1, cpus=8)
    found = validate(envelope("sysinfo", Sonar("c", "machine").sysinfo(bare)))
    assert (found["node"], found["cores_per_socket"], found["sockets"]) == ("machine", 8, 1)


def test_the_epoch_of_a_boot_never_changes(sonar: Sonar) -> None:
    """It is a part of a job's identity: a clock step or a later sysinfo must not move it."""
    epoch = told(sonar, sample(process=[process()]))["jobs"][0]["epoch"]
    sonar.sysinfo(sysinfo(seq=3, booted=BOOTED + timedelta(seconds=5)))
    stepped = sample(2, process=[process()])
    stepped.time += timedelta(hours=3)
    assert told(sonar, stepped)["jobs"][0]["epoch"] == epoch == EPOCH
    resumed = Sonar("c", "n", known=History(boots=sonar.known.boots))
    assert told(resumed, stepped)["jobs"][0]["epoch"] == epoch


def test_a_name_that_comes_late_counts_from_then_on() -> None:
    dialect = Sonar("c", "fallback")
    dialect.sysinfo(sysinfo(seq=1, hostname_full="localhost"))
    dialect.sysinfo(sysinfo(seq=4, hostname_full="vm7.example.org"))
    names = [told(dialect, sample(number))["node"] for number in (0, 1, 2, 3)]
    assert names == ["localhost", "localhost", "vm7.example.org", "vm7.example.org"]


def test_another_boot_forgets_the_processes(sonar: Sonar) -> None:
    sonar.sample(sample(process=[process(user_ticks=10)], process_info=[info()]))
    rebooted = sample(1, process=[process(user_ticks=10)])
    rebooted.boot, rebooted.boottime = "other", 600 * 10**9
    (job,) = told(sonar, rebooted)["jobs"]
    assert job["user"] == "_user_unknown"
    assert job["epoch"] != EPOCH
    assert "cpu_util" not in job["processes"][0]


def test_the_dead_are_forgotten(sonar: Sonar) -> None:
    for number in range(200):
        rows = [process(pid=pid) for pid in range(100 * number, 100 * number + 100)]
        sonar.sample(sample(number, process=rows, process_info=[info(pid=row.pid) for row in rows]))
    assert len(sonar.known.processes) < 1500


def test_a_sample_without_processes_makes_nobody_a_stranger(sonar: Sonar) -> None:
    crowd = [info(pid=pid) for pid in range(1000, 3000)]
    told(sonar, sample(process=[process(user_ticks=100)], process_info=[info()]))
    told(sonar, sample(1, process_info=crowd, gap=[GapRow(collector="process", reason="timeout")]))
    (job,) = told(sonar, sample(2, process=[process(user_ticks=1100)]))["jobs"]
    assert job["user"] == "alice"
    assert (
        job["processes"][0]["cpu_util"] == 50.0
    )  # ten seconds of CPU time in the twenty since it was last seen


def test_the_rules_would_find_what_consumers_choke_on() -> None:
    good = json.loads(envelope("sample", Sonar("c", "n").sample(sample(process=[process()]))))
    for break_it in (
        lambda m: m.update(errors=[]),
        lambda m: m["meta"].update(format=0),
        lambda m: m["meta"].update(version="0.6.0"),
        lambda m: m["data"]["attributes"]["system"].update(used_memory=1300.0),
        lambda m: m["data"]["attributes"].update(time="2026-11-16T12:16:40+0000"),
        lambda m: m["data"]["attributes"]["jobs"][0]["processes"][0].pop("pid"),
    ):
        bad = json.loads(json.dumps(good))
        break_it(bad)
        with pytest.raises(AssertionError):
            validate(json.dumps(bad))


@pytest.mark.parametrize("index", [2**40, 2**63, -1])
def test_a_cpu_that_no_machine_has_is_left_out(sonar: Sonar, index: int) -> None:
    rows = [CpuRow(cpu_index=1, user_ticks=500), CpuRow(cpu_index=index, user_ticks=900)]
    assert sonar.sample(sample(cpu=rows))["system"]["cpus"][1] == 5
    assert len(sonar.sample(sample(cpu=rows))["system"]["cpus"]) < 100
