"""Processes against the real kernel: pids that come again, hidden ones, ones that change, few descriptors."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.records import Sample

from tests.collectors.process import work
from tests.collectors.process.recorder import Recorder, assert_never_decreases, recording, seconds
from tests.parts import requires
from vmsonar.collectors.process import activity
from vmsonar.config.schema import Config, Filters

HERE = Path(__file__).parents[3]


def inside(what: str, *namespaces: str) -> list[Sample]:
    """The samples that `inner` takes in namespaces of its own."""
    command = ["unshare", *namespaces, sys.executable, "-m", "tests.collectors.process.inner", what]
    done = subprocess.run(command, capture_output=True, cwd=HERE, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Sample])


@requires("root")
def test_two_processes_with_one_pid_are_two_series() -> None:
    samples = inside("reuse", "--pid", "--fork", "--mount-proc")
    infos = [info for sample in samples for info in sample.process_info]
    (pid,) = {info.pid for info in infos if info.program == "sleep"}
    by_start = {info.start_ticks: info for info in infos if info.pid == pid}
    first, second = (by_start[start] for start in sorted(by_start))
    assert first.series_id != second.series_id
    rows = [row for sample in samples for row in sample.process if row.pid == pid]
    burnt = [row.user_ticks for row in rows if row.start_ticks == first.start_ticks]
    slept = [row.user_ticks for row in rows if row.start_ticks == second.start_ticks]
    assert (burnt[0] or 0) >= 20
    assert set(slept) == {0}
    jobs = [row for sample in samples for row in sample.job if row.pgid == pid]
    assert {row.start_ticks for row in jobs} == {first.start_ticks, second.start_ticks}
    for start in (first.start_ticks, second.start_ticks):
        assert_never_decreases([row for row in jobs if row.start_ticks == start])
    assert max(seconds(row) for row in jobs if row.start_ticks == second.start_ticks) < 0.1
    ends = [row.start_ticks for sample in samples for row in sample.event if row.pgid == pid]
    assert ends == [first.start_ticks, second.start_ticks]


@requires("root", "tmpfs_mount")
def test_hidden_processes_are_said_once() -> None:
    samples = inside("hidden", "--mount")
    assert [gap.reason for sample in samples for gap in sample.gap].count("hidepid") == 1
    assert "sleep" in {info.program for info in samples[-1].process_info}
    assert {info.user_id for sample in samples for info in sample.process_info} == {65534}
    assert 1 not in {row.pid for sample in samples for row in sample.process}


@contextmanager
def sleeper(code: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """Does something at each line it is told, answering each with a line."""
    loop = f"import os, sys\nprint(flush=True)\nfor line in sys.stdin:\n    {code or 'pass'}\n    print(flush=True)"
    with work.spawn(loop) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def tell(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()
    stat = Path(f"/proc/{process.pid}/stat")
    while b") S " not in stat.read_bytes():
        time.sleep(0.005)


def test_a_process_that_changes_its_name_gets_a_new_info_row() -> None:
    with recording() as recorder, sleeper("open('/proc/self/comm', 'w').write('renamed')") as process:
        recorder.sample()
        recorder.sample()
        tell(process)
        recorder.sample()
        recorder.sample()
        names = [info.program for info in recorder.process_infos(process.pid)]
        assert names[-1] == "renamed"
        assert names.count("renamed") == 1
        assert len({info.series_id for info in recorder.process_infos(process.pid)}) == 1


@requires("root")
def test_a_process_that_becomes_a_user_without_a_name() -> None:
    with recording() as recorder, sleeper("os.getuid() or os.setuid(3999999)") as process:
        recorder.sample()
        tell(process)
        recorder.sample(later=30)
        tell(process)
        recorder.sample(later=65)
        infos = recorder.process_infos(process.pid)
        assert [(info.user_id, info.user_name) for info in infos] == [(0, "root"), (3999999, None)]
        assert infos[0].series_id == infos[1].series_id
        assert recorder.ticks[-1].processes[process.pid].identity.user_id == 3999999


def own_cgroup() -> Iterator[Path]:
    """A control group made for this test, below the first hierarchy that lets us."""
    for root in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"):
        folder = Path(root) / f"vmsonar-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / "cgroup.procs").exists():
            yield folder
        folder.rmdir()


@requires("root")
def test_a_sleeper_that_others_move_to_another_cgroup_is_noticed_within_a_minute() -> None:
    groups = own_cgroup()
    folder = next(groups, None)
    if folder is None:
        pytest.skip("no control group can be made here")
    try:
        with recording() as recorder, sleeper() as process:
            recorder.sample()
            (folder / "cgroup.procs").write_text(str(process.pid))
            recorder.sample(later=30)
            recorder.sample(later=65)
            paths = [info.cgroup for info in recorder.process_infos(process.pid)]
            assert folder.name not in (paths[0] or "")
            assert folder.name in (paths[-1] or "")
            process.kill()
            process.wait()
    finally:
        for _ in groups:
            pass


def same_rows(one: Recorder, other: Recorder, pids: list[int]) -> None:
    for pid in pids:
        assert one.process_rows(pid)[-1] == other.process_rows(pid)[-1]
        mine, theirs = one.process_infos(pid)[-1], other.process_infos(pid)[-1]
        mine.started = theirs.started  # each has its own idea of when the machine started
        assert mine == theirs


@pytest.mark.parametrize("budget", [0, 5])
def test_without_descriptors_it_is_as_right(budget: int) -> None:
    with (
        recording() as rich,
        recording(descriptors=budget) as poor,
        sleeper("sum(range(10**6))") as one,
        sleeper() as other,
    ):
        for _ in range(3):
            tell(one)
            rich.sample(fresh=True)
            poor.sample(fresh=True)
        same_rows(rich, poor, [one.pid, other.pid])
        assert rich.job_rows(one.pid)[-1] == poor.job_rows(one.pid)[-1]
        assert poor.collector.table.files.open_count <= budget
        assert rich.collector.table.files.open_count >= 20


def test_where_the_clocks_are_anothers_schedstat_tells_who_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as by_clock, sleeper("sum(range(10**6))") as one, sleeper() as other:
        monkeypatch.setattr(activity, "has_own_clocks", lambda root: False)
        with recording() as by_schedstat:
            for _ in range(3):
                tell(one)
                by_clock.sample(fresh=True)
                by_schedstat.sample(fresh=True)
            same_rows(by_clock, by_schedstat, [one.pid, other.pid])
            ran = by_schedstat.collector.table.ran()
            assert other.pid not in {process.pid for process in ran}
            tell(one)
            assert one.pid in {process.pid for process in by_schedstat.collector.table.ran()}


def test_who_slept_is_not_read_and_who_ran_is() -> None:
    with recording() as recorder, sleeper() as one, sleeper() as other:
        recorder.sample()
        recorder.sample()
        tell(one)
        ran = {process.pid for process in recorder.collector.table.ran()}
        assert one.pid in ran
        assert other.pid not in ran


def test_a_thread_that_runs_wakes_its_process() -> None:
    code = "import threading, time\n    threading.Thread(target=lambda: sum(range(10**5))).start()"
    with recording() as recorder, sleeper(code) as process:
        recorder.sample()
        before = recorder.process_rows(process.pid)[-1].minor_faults
        tell(process)
        recorder.until(lambda: recorder.process_rows(process.pid)[-1].minor_faults != before, interval=0.05)


def test_a_zombie_is_what_it_was_until_it_is_reaped() -> None:
    with recording() as recorder, work.spawn("import sys; sys.stdin.readline()") as process:
        assert process.stdin is not None
        recorder.sample()
        recorder.sample()
        process.stdin.close()
        while b") Z " not in Path(f"/proc/{process.pid}/stat").read_bytes():
            time.sleep(0.01)
        recorder.sample()
        recorder.sample(later=30)
        recorder.sample(later=65)
        assert recorder.process_rows(process.pid)[-1].state == "Z"
        commands = {info.command for info in recorder.process_infos(process.pid)}
        assert len(commands) == 1
        process.stdin = None
        process.wait()
        recorder.sample()
        assert len(recorder.ends(process.pid)) == 1


def test_asking_what_can_be_seen_does_not_disturb_the_first_sample() -> None:
    with recording() as recorder:
        items = {one.item: one.available for one in recorder.collector.capabilities()}
        assert items["processes of all users"]
        sample = recorder.sample()
        assert len(sample.process) == len(sample.process_info) > 3
        assert sample.job
        assert {one.item for one in recorder.collector.capabilities()} == items.keys()


def test_kernel_threads_are_left_out_unless_asked_for() -> None:
    with recording() as recorder, recording(Config(filters=Filters(kernel_threads="keep"))) as every:
        usual = {info.pid: info for info in recorder.sample().process_info}
        kernel = [info for info in every.sample().process_info if info.kernel_thread]
        if not kernel:
            pytest.skip("no kernel thread can be seen here")
        assert not usual.keys() & {info.pid for info in kernel}
        # they are not read again, but a pid that became a process's is noticed within a minute
        recorder.sample(later=30)
        recorder.sample(later=61)
        assert not {row.pid for row in recorder.samples[-1].process} & {info.pid for info in kernel}


def test_a_kernel_threads_pid_that_became_a_process_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as recorder, sleeper() as process:
        table = recorder.collector.table
        table._known.add(str(process.pid))  # as if a kernel thread had had this pid
        table._kernel.append(str(process.pid))
        assert process.pid not in {row.pid for row in recorder.sample().process}
        recorder.sample(later=30)
        assert process.pid in {row.pid for row in recorder.sample(later=65).process}
