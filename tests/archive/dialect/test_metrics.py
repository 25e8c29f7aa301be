"""The table of metric names, both texts, and what a sample becomes in them."""

import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from vmsonar_archive.dialect.exposition import Family, classic, openmetrics
from vmsonar_archive.dialect.metrics import STRUCTS, Metric, table
from vmsonar_archive.dialect.places import Carried, Places
from vmsonar_archive.dialect.subjects import _RANKED, Observer, nanoseconds
from vmsonar_archive.records import (
    Card,
    ContainerInfoRow,
    ContainerRow,
    CostRow,
    CpuRow,
    DiskRow,
    EnergyRow,
    FilesystemRow,
    GpuRow,
    JobInfoRow,
    JobRow,
    NetfsRow,
    NetRow,
    NodeRow,
    PressureRow,
    Stamp,
    SysInfo,
)

from tests.making.metered import BOOTED, Crowded, Everything, by_convention, exported, observed, sample
from tests.parts import requires
from tests.real.prometheus import import_history

STAMP = set(Stamp.__struct_fields__)
BOX = "b" * 64


def machine(**fields: object) -> SysInfo:
    told = {
        "hostname_full": "vm.example",
        "ticks_per_second": 100,
        "interval": 10_000,
        "sockets": 1,
        **fields,
    }
    return SysInfo(time=BOOTED, seq=1, run="r", boot="boot-1", boottime=1, **told)


def job(pgid: int, **fields: object) -> JobRow:
    return JobRow(**{"pgid": pgid, "start_ticks": 100 * pgid, "processes": 1, **fields})


def named(pgid: int, **fields: object) -> JobInfoRow:
    start = {"pgid": pgid, "start_ticks": 100 * pgid, "series_id": f"s{pgid}", "job_id": str(pgid)}
    return JobInfoRow(**{**start, "user_name": "anna", "program": "python", **fields})


def shown(observer: Observer) -> dict[str, float]:
    """Every sample of the text by its name and labels."""
    lines = classic(observer.families()).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    found = [(name, float(value)) for name, value in pairs]
    assert len(dict(found)) == len(found), "a series twice"
    return dict(found)


def whole() -> Observer:
    """An observer of one sample with a row of every kind."""
    observer = Observer()
    observer.learn_machine(machine(cards=[Card(gpu_uuid="GPU-1", model="A100", driver="550")]))
    numbers = dict.fromkeys(("user_ticks", "nice_ticks", "system_ticks", "idle_ticks", "guest_ticks"), 150)
    observer.observe(
        sample(
            100,
            node=[NodeRow(**numbers, load1=0.5, memory_total=2**33, forks=7, ticks_per_second=100)],
            cpu=[CpuRow(cpu_index=0, user_ticks=75)],
            disk=[DiskRow(device="vda", device_major=8, device_minor=0, read_sectors=3, busy_time=1500)],
            filesystem=[FilesystemRow(device_major=8, device_minor=1, mount_point="/", bytes_total=10)],
            netfs=[NetfsRow(device_major=0, device_minor=50, mount_point="/home", age=9, read_operations=4)],
            net=[NetRow(interface="eth0", received_bytes=2**53, interface_kind="physical")],
            pressure=[PressureRow(resource="io", some_time=2_500_000)],
            energy=[EnergyRow(meter="rapl:package-0", energy_source="rapl", energy=10, energy_range=1000)],
            gpu=[GpuRow(gpu_uuid="GPU-1", gpu_index=0, gpu_util=25.0, core_clock=1410, energy=5_000_000)],
            container=[ContainerRow(container_id=BOX, start_boottime=10**9, cpu_time=1_500_000_000)],
            container_info=[ContainerInfoRow(series_id="c", container_id=BOX, name="web", image="nginx")],
            job=[job(40, user_ticks=123, memory=4096, unattributed=True)],
            job_info=[named(40)],
            cost=[CostRow(cpu_time=10**9)],
        )
    )
    return observer


def test_every_field_is_named_or_left_out_for_a_reason():
    known = table()
    lines = [
        *known.metrics,
        *known.server,
        *(one for of in (known.labels, known.infos) for ones in of.values() for one in ones),
    ]
    told = {(one.source, one.field) for one in lines} | {(one.kind, one.field) for one in known.left_out}
    for kind, struct in STRUCTS.items():
        fields = set(struct.__struct_fields__) - STAMP
        assert (kind, "*") in told or {name for of, name in told if of == kind} == fields, kind
    assert all(one.reason for one in known.left_out)


@pytest.mark.parametrize(
    "metric", [*table().metrics, *table().server], ids=lambda metric: f"{metric.source}.{metric.field}"
)
def test_names_follow_the_customs(metric: Metric):
    bare = metric.name.removesuffix("_total")
    assert metric.is_counter == metric.name.endswith("_total")
    assert (
        bare.endswith(f"_{metric.unit}")
        if metric.unit
        else not bare.endswith(("_seconds", "_bytes", "_ratio"))
    )
    assert metric.help


def test_what_shares_a_name_shares_type_and_unit_and_differs_in_labels():
    for of in (table().by_name(), by_convention()):
        for name, metrics in of.items():
            assert len({(one.role, one.ucum, one.kind) for one in metrics}) == 1, name
    for metrics in table().by_name().values():
        assert len({one.labels for one in metrics}) == len(metrics)
    for metrics in by_convention().values():
        assert len({one.attributes for one in metrics}) == len(metrics)


def test_base_units_and_labels():
    found = shown(whole())
    assert found['vmsonar_node_cpu_seconds_total{mode="user"}'] == 1.5
    assert found['vmsonar_disk_read_bytes_total{device="vda"}'] == 3 * 512
    assert found['vmsonar_disk_busy_seconds_total{device="vda"}'] == 1.5
    assert found['vmsonar_net_received_bytes_total{interface="eth0"}'] == 2**53
    assert found['vmsonar_pressure_some_seconds_total{resource="io"}'] == 2.5
    assert found['vmsonar_gpu_utilization_ratio{gpu_uuid="GPU-1",gpu="0"}'] == 0.25
    assert found['vmsonar_gpu_core_clock_hertz{gpu_uuid="GPU-1",gpu="0"}'] == 1.41e9
    of_job = 'series_id="s40",job_id="40",program="python",user="anna"'
    assert found[f'vmsonar_job_cpu_seconds_total{{{of_job},mode="user"}}'] == 1.23
    assert found[f"vmsonar_job_cpu_inexact{{{of_job}}}"] == 1
    assert found[f"vmsonar_job_start_time_seconds{{{of_job}}}"] == BOOTED.timestamp() + 40
    assert found[f'vmsonar_container_cpu_seconds_total{{container_id="{BOX}",name="web"}}'] == 1.5
    assert 'model="A100",driver="550"' in next(name for name in found if name.startswith("vmsonar_gpu_info"))


def test_a_guests_time_is_not_counted_twice():
    modes = {name for name in shown(whole()) if name.startswith("vmsonar_node_cpu_seconds_total")}
    assert modes == {
        f'vmsonar_node_cpu_seconds_total{{mode="{mode}"}}' for mode in ("user", "nice", "system", "idle")
    }


def test_null_is_no_sample():
    observer = Observer()
    observer.observe(sample(10, node=[NodeRow(load1=0.0)]))
    assert {name for name in shown(observer) if name.startswith("vmsonar_node_")} == {
        "vmsonar_node_load1", "vmsonar_node_boot_time_seconds",
    }  # fmt: skip


def test_no_process_and_no_command_line_is_a_label():
    labels = {
        key
        for of in (table().labels, table().infos)
        for ones in of.values()
        for key in (one.name for one in ones)
    }
    assert not labels & {"pid", "pgid", "command", "session_id"}


HOSTILE = ['a"b', "a\nb", "a\\", "\0", "{}", 'x",mode="idle"} 9\n# EOF', "é\u2028", "", " ", "# HELP"]


class Hostile(Everything):
    """Whoever may name something does so in the worst way."""

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        rows = super().rows(fresh)
        named = {"disk": "device", "net": "interface", "filesystem": "mount_point", "cgroup": "cgroup"}
        for kind, field in named.items():
            rows[kind] = [replace(rows[kind][0], **{field: name}) for name in HOSTILE]
        rows["job_info"] = [replace(rows["job_info"][0], program=name) for name in HOSTILE[:1]]
        rows["container_info"] = [replace(rows["container_info"][0], name=name) for name in HOSTILE[-1:]]
        return rows


@requires("prometheus")
@pytest.mark.parametrize("kind", [Everything, Crowded, Hostile])
def test_promtool_has_no_complaint(tmp_path: Path, kind: type[Everything]):
    machine = kind(tmp_path / "archive")
    text = classic(observed(machine)[0].families())
    assert {one.name.encode() for one in table().metrics} <= set(re.findall(rb"(?m)^\w+", text))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
    import_history(exported(machine.root, tmp_path / "om").glob("*.om"), tmp_path / "data")


def test_the_two_texts_name_a_counter_differently():
    families = [
        Family("x_bytes_total", "counter", "what", "bytes", [("", 1)]),
        Family("x_info", "info", "w", "", []),
    ]
    assert (
        classic(families).decode()
        == "# HELP x_bytes_total what\n# TYPE x_bytes_total counter\nx_bytes_total 1\n"
    )
    assert openmetrics(families).decode() == (
        "# TYPE x_bytes counter\n# UNIT x_bytes bytes\n# HELP x_bytes what\nx_bytes_total 1\n# EOF\n"
    )


@pytest.mark.parametrize("name", [*HOSTILE, "\ud800"])
def test_hostile_names_stay_within_their_quotes(name: str):
    observer = Observer()
    row = DiskRow(device=name, device_major=1, device_minor=1, reads=5)
    observer.observe(sample(10, disk=[row]))
    text = classic(observer.families())
    lines = [line for line in text.decode().split("\n") if line.startswith("vmsonar_disk_reads_total")]
    assert len(lines) == 1
    assert lines[0].endswith('"} 5')
    assert openmetrics(observer.families()).count(b"\n# EOF\n") == 1
    assert b"\0" not in text


def test_an_ended_job_has_its_counters_once_more_and_no_gauges():
    observer = Observer(hold_seconds=90)
    observer.observe(sample(50, job=[job(40, user_ticks=100, memory=1)], job_info=[named(40)]))
    assert any(name.startswith("vmsonar_job_memory_bytes") for name in shown(observer))
    observer.observe(sample(60, job=[job(40, user_ticks=300, processes=0, memory=0)]))
    for seconds in (60, 130):
        names = {name.partition("{")[0] for name in shown(observer) if name.startswith("vmsonar_job_")}
        assert names == {"vmsonar_job_cpu_seconds_total"}
        observer.observe(sample(seconds + 10))
    observer.observe(sample(160))
    assert not [name for name in shown(observer) if name.startswith("vmsonar_job_")]


def test_file_systems_are_shown_between_their_rows_only_where_asked():
    for hold, expected in ((90, 1), (0, 0)):
        observer = Observer(hold_seconds=hold)
        row = FilesystemRow(device_major=8, device_minor=1, mount_point="/", bytes_available=10)
        observer.observe(sample(50, filesystem=[row]))
        observer.observe(sample(100))
        found = [name for name in shown(observer) if name.startswith("vmsonar_filesystem_available")]
        assert len(found) == expected


def test_both_lives_of_a_container_that_was_started_again():
    observer = Observer()
    before = ContainerRow(container_id=BOX, cgroup_inode=1, start_boottime=10**9, cpu_time=100)
    observer.observe(sample(10, container=[before]))
    last = ContainerRow(
        container_id=BOX,
        cgroup_inode=1,
        start_boottime=10**9,
        cpu_time=500,
        end_boottime=12 * 10**9,
        processes=0,
    )
    fresh = ContainerRow(container_id=BOX, cgroup_inode=2, start_boottime=15 * 10**9, cpu_time=50)
    observer.observe(sample(20, container=[fresh, last]))
    nano = 1_000_000_000
    begin = int(BOOTED.timestamp()) * nano
    lives = [
        (one.start - begin, one.end and one.end - begin, one.row.cpu_time)
        for one in observer.subjects["container"]
    ]
    assert lives == [(nano, 12 * nano, 500), (15 * nano, None, 50)]
    assert shown(observer)[f'vmsonar_container_cpu_seconds_total{{container_id="{BOX}"}}'] == 50 / 1e9


def test_energy_goes_on_where_the_meter_wraps():
    observer = Observer()
    span = 65_532_610_987

    def joules(seconds: float, energy: int, boot: str = "boot-1") -> float:
        row = EnergyRow(meter="rapl:package-0", energy_source="rapl", energy=energy, energy_range=span)
        observer.observe(sample(seconds, boot=boot, energy=[row]))
        return shown(observer)['vmsonar_meter_energy_joules_total{meter="rapl:package-0",source="rapl"}']

    assert joules(10, span - 1_000_000) == 0
    assert joules(20, 2_000_000) == 3
    assert joules(30, 5_000_000) == 6
    # At 500 W it may have gone round any number of times.
    assert joules(400, 9_000_000) == 6
    assert joules(10, 1_000_000, boot="boot-2") == 6
    assert joules(20, 2_000_000, boot="boot-2") == 7
    # Another observer goes on, before there is a reading of the boot too.
    observer.observe(sample(5, boot="boot-3"))
    carried, observer = observer.carried, Observer()
    observer.resume(carried, [])
    assert joules(10, 1_000_000, boot="boot-3") == 7
    assert joules(20, 3_000_000, boot="boot-3") == 9


def test_when_counters_began():
    observer = Observer()
    nano = 1_000_000_000
    begin = int(BOOTED.timestamp()) * nano

    def start(seconds: float, reads: int, boot: str = "boot-1") -> int:
        row = DiskRow(device="vda", device_major=8, device_minor=0, reads=reads)
        observer.observe(sample(seconds, boot=boot, disk=[row]))
        return observer.subjects["disk"][0].start - begin

    assert [start(10, 5), start(20, 9)] == [0, 0]
    # It was taken away and came back: at the earliest after the sample before.
    assert [start(30, 2), start(40, 3)] == [20 * nano, 20 * nano]
    # So it is where it was away for long; not after a reboot.
    observer.observe(sample(200))
    assert start(300, 5) == 20 * nano
    assert start(400, 1, boot="boot-2") == 0


def test_a_share_that_was_mounted_again_has_counted_since_then():
    observer = Observer()
    for seconds, age, expected in ((100, 50, 50), (160, 110, 50), (220, 5, 215)):
        row = NetfsRow(device_major=0, device_minor=5, mount_point="/home", age=age, read_operations=age)
        observer.observe(sample(seconds, netfs=[row]))
        (share,) = observer.subjects["netfs"]
        assert share.start == nanoseconds(BOOTED) + expected * 1_000_000_000


def test_places_go_to_the_busiest_and_not_to_and_fro():
    places = Places(2)
    nano = 1_000_000_000
    assert places.choose({"idle": 1, "busy": 50, "calm": 2}, 0) == {"busy", "calm"}
    late = {"idle": 1, "busy": 100, "calm": 2, "late": 500}
    assert places.choose(late, 10 * nano) == {"busy", "calm"}
    assert places.choose({**late, "late": 900}, 601 * nano) == {"busy", "late"}


def test_another_observer_goes_on_as_the_first_would():
    first, second, told = Observer(places=1), Observer(places=1), []
    for number in range(20):
        # One has the place and works; what the other did was long ago. The disk is another one, and a clock is set.
        rows = [job(1, user_ticks=1000 * number), job(2, user_ticks=900_000 + number)]
        disk = DiskRow(device="vda", device_major=1, device_minor=1, reads=number % 17)
        meter = EnergyRow(meter="m", energy_source="rapl", energy=number % 18, energy_range=2**40)
        told.append(sample(100 * number + 100, job=rows[: number + 1], disk=[disk], energy=[meter]))
        told[-1].time += timedelta(seconds=9 * (number > 17))
    told[0].job_info = [named(1), named(2)]
    for one in told:
        second.learn(one)
    for number, one in enumerate(told):
        first.observe(one)
        if number == 18:
            carried = msgspec.json.decode(msgspec.json.encode(first.carried), type=Carried)
            second.resume(carried, told[number - 5 : number + 1])
            assert second.carried == carried
    second.observe(told[-1])
    assert shown(second) == shown(first)
    assert [one.start for one in second.subjects["disk"]] == [one.start for one in first.subjects["disk"]]


@pytest.mark.parametrize("kind", ["disk", "net", "netfs", "filesystem", "container", "cgroup"])
def test_very_many_of_a_kind_are_counted_and_not_shown(tmp_path: Path, kind: str):
    _, last = observed(Crowded(tmp_path / "archive"))
    few = Observer(places=3)
    if kind in ("disk", "net", "netfs", "filesystem"):
        (row, *_) = getattr(last, kind)
        names = {"device", "interface", "mount_point", "device_minor"} & set(row.__struct_fields__)
        made = [
            replace(row, **{name: n if name == "device_minor" else str(n) for name in names})
            for n in range(10)
        ]
        last = replace(last, **{kind: made})
    few.observe(last)
    view = few.subjects["view"][0].row
    assert len(few.subjects[kind]) == 3
    assert getattr(view, _RANKED[kind][0]) == len(getattr(last, kind)) - 3


def test_cardinality_is_bounded_under_10_000_jobs_an_hour():
    observer, seen, told = Observer(places=100), set(), 0
    for tick in range(361):
        born = range(28 * tick + 1, 28 * tick + 29)
        alive = [job(pgid, user_ticks=pgid % 97) for pgid in born]
        observer.observe(sample(10_000 + 10 * tick, job=alive, job_info=[named(pgid) for pgid in born]))
        seen |= {one.text for one in observer.subjects["job"]}
        told += observer.subjects["view"][0].row.jobs_not_shown
    assert 100 <= len(seen) <= 700
    assert told == 361 * 28 - len(seen)
