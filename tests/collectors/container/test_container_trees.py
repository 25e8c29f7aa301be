"""The container collector over fixture machines: layouts of control groups, engines, what comes and goes."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.records import ContainerDevice, ContainerRow
from vmsonar_archive.records.sample import KINDS

from tests.collectors.container.ticks import tick_of
from tests.collectors.container.trees import Machine, write
from vmsonar.collectors.base import Rows, Setup, Tick
from vmsonar.collectors.container import collector as container
from vmsonar.collectors.container.wire import ContainerEnd
from vmsonar.config.schema import Config

A = "a" * 64
B = "b" * 64
USER = "/user.slice/user-1000.slice/user@1000.service"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234.slice"

TREES = [
    ("v1", f"/docker/{A}", "docker"),
    ("hybrid", f"/docker/{A}", "docker"),
    ("v2", f"/system.slice/docker-{A}.scope", "docker"),
    ("v2", f"/docker/{A}", "docker"),
    ("v2", f"{USER}/user.slice/docker-{A}.scope", "docker"),
    ("v2", f"/machine.slice/libpod-{A}.scope", "podman"),
    ("v2", f"{USER}/user.slice/libpod-{A}.scope", "podman"),
    ("v2", f"{POD}/cri-containerd-{A}.scope", "containerd"),
    ("v2", f"{POD}/crio-{A}.scope", "crio"),
    ("v1", f"/kubepods/burstable/pod1234/{A}", "unknown"),
    ("v2", f"/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/libpod-{A}.scope", "podman"),
]


def rows_of(rows: Rows, kind: str) -> list[msgspec.Struct]:
    return [msgspec.json.decode(row, type=KINDS[kind]) for row in rows.by_kind.get(kind, [])]


@pytest.fixture
def collector_of() -> Iterator[object]:
    made = []

    def make(machine: Machine) -> container.ContainerCollector:
        collector = container.make(Setup(Config(), machine.host))
        made.append(collector)
        return collector

    yield make
    for collector in made:
        collector.close()


@pytest.mark.parametrize(("hierarchy", "path", "engine"), TREES)
def test_each_layout_gives_the_same_numbers(tmp_path, collector_of, hierarchy, path, engine):
    machine = Machine(tmp_path, hierarchy)
    machine.group(path)
    machine.process(100, path)
    rows = collector_of(machine).collect(tick_of(machine.host.proc))
    (row,) = rows_of(rows, "container")
    (info,) = rows_of(rows, "container_info")
    assert (row.container_id, row.cgroup_version) == (A, 2 if hierarchy == "v2" else 1)
    assert (row.cpu_time, row.cpu_user_time, row.cpu_system_time) == (5 * 10**9, 3 * 10**9, 2 * 10**9)
    assert (row.memory_used, row.memory_peak, row.memory_anonymous, row.memory_file) == (1000, 2000, 20, 10)
    assert (row.memory_inactive_file, row.memory_shared, row.swap_used, row.oom_kills) == (5, 1, 0, 0)
    assert (row.read_bytes, row.write_bytes, row.processes) == (1, 2, 3)
    assert row.devices == [
        ContainerDevice(device_major=8, device_minor=0, read_bytes=1, write_bytes=2, reads=1, writes=1)
    ]
    assert (row.received_bytes, row.sent_bytes, row.network_shared) == (100, 200, False)
    assert (info.container_id, info.engine, info.cgroup) == (A, engine, path)


def test_v2_adds_pressure_and_limits(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    (row,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert (row.cpu_unlimited, row.cpu_quota, row.cpu_period, row.cpu_set) == (True, None, 100000, "0-3")
    assert (row.memory_limit, row.memory_unlimited, row.processes_limit) == (4096, False, 512)
    assert (row.cpu_some_time, row.cpu_full_time) == (11, None)
    assert (row.memory_some_time, row.memory_full_time, row.io_some_time, row.io_full_time) == (1, 2, 3, 4)


def test_v1_says_throttling_and_quota(tmp_path, collector_of):
    machine = Machine(tmp_path, "v1")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    (row,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert (row.periods, row.throttled_periods, row.throttled_time) == (9, 4, 70)
    assert (row.cpu_quota, row.cpu_period, row.cpu_unlimited, row.cpu_set) == (50000, 100000, False, "0-1")
    assert (row.memory_limit, row.memory_unlimited, row.processes_limit) == (None, True, None)
    assert row.cpu_some_time is None


def test_what_a_group_lacks_is_null_and_not_zero(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    for name in ("memory.peak", "io.stat", "memory.swap.current", "pids.current"):
        (machine.cgroups / "docker" / A / name).unlink()
    (row,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert (row.memory_peak, row.read_bytes, row.write_bytes, row.swap_used, row.processes) == (None,) * 5
    assert row.memory_used == 1000


def test_io_that_the_kernel_does_not_count_is_null(tmp_path, collector_of):
    machine = Machine(tmp_path, "v1")
    write(machine.cgroups / "blkio/blkio.throttle.io_service_bytes", "Total 0\n")
    nothing = {"blkio_throttle_io_service_bytes": "Total 0\n", "blkio_throttle_io_serviced": "Total 0\n"}
    machine.group(f"/docker/{A}", **nothing)
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc)), "container")
    assert (row.read_bytes, row.write_bytes, row.devices) == (None, None, None)
    (io,) = [item for item in collector.capabilities() if item.item.startswith("I/O")]
    assert (io.available, io.remedy) == (False, "boot with cgroup v2: systemd.unified_cgroup_hierarchy=1")


def test_a_hybrid_machine_has_pressure_beside_v1(tmp_path, collector_of):
    machine = Machine(tmp_path, "hybrid")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    write(machine.host.proc / "100/cgroup", f"1:cpuacct:/docker/{A}\n2:memory:/docker/{A}\n0::/docker/{A}\n")
    write(machine.cgroups / f"unified/docker/{A}/io.pressure", "some total=3\nfull total=4\n")
    write(machine.cgroups / f"unified/docker/{A}/cpu.stat", "usage_usec 1\n")
    (row,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert (row.cgroup_version, row.cpu_time, row.io_some_time, row.io_full_time) == (1, 5 * 10**9, 3, 4)


def test_a_process_deeper_in_the_container_still_finds_its_group(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}/init.scope")
    (row,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert (row.container_id, row.cpu_time) == (A, 5 * 10**9)


def test_a_container_in_a_container_is_a_container_of_its_own(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}", cpu_stat="usage_usec 9\n")
    machine.group(f"/docker/{A}/docker/{B}", cpu_stat="usage_usec 4\n")
    machine.process(100, f"/docker/{A}")
    machine.process(101, f"/docker/{A}/docker/{B}")
    rows = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert {row.container_id: row.cpu_time for row in rows} == {A: 9000, B: 4000}


def test_changed_files_change_the_row_and_an_unchanged_row_is_the_same_bytes(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    first = collector.collect(tick_of(machine.host.proc, boottime=0)).by_kind["container"]
    second = collector.collect(tick_of(machine.host.proc, boottime=1)).by_kind["container"]
    assert second[0] is first[0]
    _overwrite(machine.cgroups / "docker" / A / "memory.current", "7777\n")
    _overwrite(machine.cgroups / "docker" / A / "cpu.stat", "usage_usec 5000001\n")
    third = collector.collect(tick_of(machine.host.proc, boottime=2)).by_kind["container"]
    assert msgspec.json.decode(third[0], type=ContainerRow).memory_used == 7777


def test_a_sleeping_container_is_read_whole_once_a_minute(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    _settle(collector, machine)
    _overwrite(machine.cgroups / "docker" / A / "memory.current", "500\n")
    used = []
    for seconds in (10, 61):
        (row,) = rows_of(
            collector.collect(tick_of(machine.host.proc, boottime=seconds * 10**9 + 1)), "container"
        )
        used.append(row.memory_used)
    assert used == [1000, 500]


def test_limits_are_read_again_after_a_minute(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    _settle(collector, machine)
    _overwrite(machine.cgroups / "docker" / A / "memory.max", "8192\n")
    limits = []
    for seconds in (10, 61):
        (row,) = rows_of(
            collector.collect(tick_of(machine.host.proc, boottime=seconds * 10**9 + 1)), "container"
        )
        limits.append(row.memory_limit)
    assert limits == [4096, 8192]


def test_what_a_runtime_sets_after_the_first_look_is_seen_at_the_next(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}", memory_max="max\n")
    group = machine.cgroups / "docker" / A
    (group / "pids.max").unlink()
    (group / "memory.current").unlink()
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=1)), "container")
    assert (row.memory_limit, row.memory_unlimited, row.memory_used, row.processes_limit) == (
        None,
        True,
        None,
        None,
    )
    machine.group(f"/docker/{A}", memory_max="8192\n")
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=2)), "container")
    assert (row.memory_limit, row.memory_unlimited, row.memory_used, row.processes_limit) == (
        8192,
        False,
        1000,
        512,
    )


def test_a_container_that_was_joining_its_v1_groups_is_whole_at_the_next_look(tmp_path, collector_of):
    machine = Machine(tmp_path, "v1")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    joined = machine.host.proc / "100/cgroup"
    whole = joined.read_text()
    joined.write_text(
        "".join(
            f"{line.rpartition(':')[0]}:/\n" if "memory" in line else f"{line}\n"
            for line in whole.splitlines()
        )
    )
    collector = collector_of(machine)
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=1)), "container")
    assert (row.cpu_time, row.memory_used) == (5 * 10**9, None)
    joined.write_text(whole)
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=2)), "container")
    assert (row.cpu_time, row.memory_used) == (5 * 10**9, 1000)


def _settle(collector: container.ContainerCollector, machine: Machine) -> None:
    """Looks until the group counts as set up, within a minute of the first look."""
    for _ in range(5):
        collector.collect(tick_of(machine.host.proc, boottime=1))


def test_an_info_row_comes_once_per_segment(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    counts = [
        len(rows_of(collector.collect(tick_of(machine.host.proc, fresh=fresh)), "container_info"))
        for fresh in (True, False, False, True, False)
    ]
    assert counts == [1, 0, 0, 1, 0]


def test_without_an_engine_starts_and_ends_are_told_by_the_groups(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    told = [_events(collector, machine)]
    machine.group(f"/docker/{B}")
    machine.process(101, f"/docker/{B}")
    told.append(_events(collector, machine))
    shutil.rmtree(machine.host.proc / "101")
    shutil.rmtree(machine.cgroups / "docker" / B)
    told.append(_events(collector, machine))
    assert told == [[], [("container_start", B)], [("container_die", B)]]


def test_without_an_engine_one_gap_row_says_so(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    collector = collector_of(machine)
    reasons = [_gaps(collector, machine)]
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    reasons += [_gaps(collector, machine) for _ in range(3)]
    assert reasons == [[], ["engine_absent"], [], []]


def test_containers_are_found_in_the_tree_where_processes_are_hidden(tmp_path, collector_of):
    machine = Machine(tmp_path, "v1")
    machine.group(f"/docker/{A}")
    machine.group(f"/docker/{A}/docker/{B}")
    shutil.rmtree(machine.host.proc / "1")
    rows = collector_of(machine).collect(tick_of(machine.host.proc))
    assert sorted(row.container_id for row in rows_of(rows, "container")) == [A, B]
    assert [row.received_bytes for row in rows_of(rows, "container")] == [None, None]


def test_a_network_is_counted_for_its_oldest_container(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    for pid, name in ((200, A), (100, B)):
        machine.group(f"/docker/{name}")
        machine.process(pid, f"/docker/{name}")
    shared = machine.host.proc / "200/net/dev"
    shared.unlink()
    shared.hardlink_to(machine.host.proc / "100/net/dev")
    rows = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert {row.container_id: (row.network_shared, row.sent_bytes) for row in rows} == {
        A: (True, 200),
        B: (False, 200),
    }
    assert len({row.network_namespace for row in rows}) == 1


def test_a_network_number_that_is_used_again_is_another_network(tmp_path, collector_of):
    """The kernel gives the lowest free number: the next container often gets that of the last one."""
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    (first,) = rows_of(collector.collect(tick_of(machine.host.proc)), "container")
    machine.group(f"/docker/{B}")
    machine.process(200, f"/docker/{B}")
    (machine.host.proc / "200/net/dev").unlink()
    (machine.host.proc / "100/net/dev").rename(machine.host.proc / "200/net/dev")
    shutil.rmtree(machine.host.proc / "100")
    shutil.rmtree(machine.cgroups / "docker" / A)
    rows = rows_of(collector.collect(tick_of(machine.host.proc)), "container")
    second = next(row for row in rows if row.container_id == B)
    assert first.network_namespace == second.network_namespace
    assert (first.network_shared, second.network_shared) == (False, False)
    assert (first.network_since, second.network_since) == (10**9, 2 * 10**9)


def test_a_restart_between_two_samples_is_another_life(tmp_path, collector_of):
    """No engine tells: what it used after the last sample is unknown, and said to be."""
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    (before,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=10 * 10**9)), "container")
    # Removed and made anew at the same path; a kept descriptor of a removed group fails, one of a file does not.
    shutil.rmtree(machine.cgroups / "docker" / A)
    shutil.rmtree(machine.host.proc / "100")
    assert rows_of(collector.collect(tick_of(machine.host.proc, boottime=20 * 10**9)), "container")
    machine.group(f"/docker/{A}", cpu_stat="usage_usec 9000000\n")
    machine.process(300, f"/docker/{A}")
    (after,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=30 * 10**9)), "container")
    assert before.cgroup_inode != after.cgroup_inode or before.start_boottime != after.start_boottime
    assert (before.start_boottime, after.start_boottime) == (10**9, 3 * 10**9)


def test_a_container_that_went_unheard_has_a_last_row_with_its_bound(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    collector.collect(tick_of(machine.host.proc, boottime=10 * 10**9))
    shutil.rmtree(machine.host.proc / "100")
    shutil.rmtree(machine.cgroups / "docker" / A)
    (end,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=20 * 10**9)), "container")
    assert (end.end_boottime, end.cpu_source, end.cpu_time) == (10 * 10**9, "reading", 5 * 10**9)
    assert end.cpu_time_high == 5 * 10**9 + 10 * 10**9 * os.cpu_count()
    # Nobody is there: that is no sample of what it held, but the kernel's peak stays true.
    assert (end.memory_used, end.memory_anonymous, end.processes, end.memory_peak) == (None, None, None, 2000)
    assert "container" not in collector.collect(tick_of(machine.host.proc, boottime=30 * 10**9)).by_kind


def test_lives_that_ended_come_in_order_and_before_the_one_that_goes_on(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    ends = [
        ContainerRow(
            container_id=A, cgroup_inode=number, end_boottime=number, cpu_time=number, cpu_source="final"
        )
        for number in (1, 2)
    ]
    told = [ContainerEnd(container_id=A, row=row) for row in ends]
    collector._book.keep(told)
    rows = rows_of(collector.collect(tick_of(machine.host.proc)), "container")
    assert [row.cpu_time for row in rows] == [1, 2, 5 * 10**9]
    # The end of the life that was sampled too: one row, not a sample after the end.
    over = ContainerRow(container_id=A, cgroup_inode=rows[2].cgroup_inode, end_boottime=3, cpu_source="final")
    collector._book.keep([ContainerEnd(container_id=A, row=over)])
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc)), "container")
    assert row.end_boottime == 3


def test_our_own_reading_counts_where_the_companion_came_too_late(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    (sampled,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=10 * 10**9)), "container")
    late = ContainerRow(
        container_id=A, cgroup_inode=sampled.cgroup_inode, cpu_time=10**9, cpu_source="reading"
    )
    late.end_boottime, late.cpu_time_high = 11 * 10**9, 40 * 10**9
    collector._book.keep([ContainerEnd(container_id=A, row=late)])
    shutil.rmtree(machine.host.proc / "100")
    (row,) = rows_of(collector.collect(tick_of(machine.host.proc, boottime=20 * 10**9)), "container")
    assert (row.cpu_time, row.cpu_source) == (5 * 10**9, "reading")
    assert row.cpu_time_high == 5 * 10**9 + 10**9 * os.cpu_count()


def test_the_hosts_network_is_marked_as_shared(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    own = machine.host.proc / "100/net/dev"
    own.unlink()
    own.hardlink_to(machine.host.proc / "1/net/dev")
    (row,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container")
    assert row.network_shared is True


def test_without_descriptors_to_spare_the_files_are_opened_each_time(tmp_path, monkeypatch, collector_of):
    monkeypatch.setattr("vmsonar.collectors.container.collector.resource.getrlimit", lambda _: (0, 0))
    machine = Machine(tmp_path, "v2")
    machine.group(f"/docker/{A}")
    machine.process(100, f"/docker/{A}")
    collector = collector_of(machine)
    for used in ("1000\n", "1234\n"):
        _overwrite(machine.cgroups / "docker" / A / "memory.current", used)
        _overwrite(machine.cgroups / "docker" / A / "cpu.stat", f"usage_usec {used}")
        (row,) = rows_of(collector.collect(tick_of(machine.host.proc)), "container")
        assert row.memory_used == int(used)


def test_a_rootless_container_belongs_to_its_user(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    write(machine.host.etc / "passwd", "alice:x:1000:1000::/home/alice:/bin/sh\n")
    path = f"{USER}/user.slice/docker-{A}.scope"
    machine.group(path)
    machine.process(100, path)
    (info,) = rows_of(collector_of(machine).collect(tick_of(machine.host.proc)), "container_info")
    assert (info.user_id, info.user_name, info.user_source) == (1000, "alice", "cgroup")


def test_no_container_no_rows(tmp_path, collector_of):
    machine = Machine(tmp_path, "v2")
    assert collector_of(machine).collect(tick_of(machine.host.proc)).by_kind == {}


def _events(collector: container.ContainerCollector, machine: Machine) -> list[tuple[str, str]]:
    rows = collector.collect(tick_of(machine.host.proc))
    return [(row.event_type, row.container_id) for row in rows_of(rows, "event")]


def _gaps(collector: container.ContainerCollector, machine: Machine) -> list[str]:
    tick: Tick = tick_of(machine.host.proc)
    return [row.reason for row in rows_of(collector.collect(tick), "gap")]


def _overwrite(path: Path, text: str) -> None:
    # In place: a kernel file keeps its inode, and so does the descriptor on it.
    with path.open("r+") as file:
        file.truncate()
        file.write(text)
