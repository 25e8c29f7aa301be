"""Lives between two samples, by the real kernel: the look, the word and the wait come in any order."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from vmsonar_archive.records import JobRow

from tests.collectors.process.recorder import Recorder, recording
from tests.parts import requires
from tests.real.wait import let_pass
from vmsonar.config.schema import Config, Lifeline

pytestmark = requires("connector")

HERTZ = os.sysconf("SC_CLK_TCK")


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def child(*steps: object) -> int:
    """A process in a group of its own; numbers are seconds of CPU time, words are what it does between."""
    pid = os.fork()
    if pid:
        with suppress(OSError):
            os.setpgid(pid, pid)  # as shells do: whoever of the two comes first
        return pid
    os.setpgid(0, 0)
    for step in steps:
        if isinstance(step, float):
            burn(step)
        elif step == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        recorder.sample()
        yield recorder


def last_row(recorder: Recorder, pgid: int) -> JobRow:
    rows = [row for sample in recorder.samples for row in sample.job if row.pgid == pgid]
    assert rows, f"group {pgid} has no row"
    return rows[-1]


def cpu(row: JobRow) -> float:
    return ((row.user_ticks or 0) + (row.system_ticks or 0)) / HERTZ


def test_a_pipeline_has_the_time_of_a_leader_that_ended_first(recorder: Recorder) -> None:
    """`work | sleep`: the leader is gone when the sample comes, the group is not."""
    leader = child("stop", 0.3)
    os.waitpid(leader, os.WUNTRACED)
    start = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[19])
    sleeper = subprocess.Popen(["sleep", "30"], process_group=leader)
    os.kill(leader, signal.SIGCONT)
    os.waitpid(leader, 0)
    recorder.sample()
    sleeper.kill()
    sleeper.wait()
    recorder.sample()
    row = last_row(recorder, leader)
    assert cpu(row) == pytest.approx(0.3, abs=0.04)
    assert row.start_ticks == pytest.approx(start, abs=1)  # the job is as old as its leader


def test_a_zombie_keeps_its_own_end_and_time(recorder: Recorder) -> None:
    """Nobody waits for it for a while: its group ended when it did, and its parent's group used nothing."""
    ended = child(0.2)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    died = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    recorder.sample()
    let_pass(1.2)
    recorder.sample()
    os.waitpid(ended, 0)
    recorder.sample()
    row = last_row(recorder, ended)
    assert row.processes == 0
    assert row.end_boottime == pytest.approx(died, abs=5e8)
    assert cpu(row) == pytest.approx(0.2, abs=0.04)


def test_one_that_is_born_just_before_the_look_has_its_end_told(recorder: Recorder) -> None:
    """The first look may be faster than the word of the birth."""
    for _ in range(20):
        pid = child("stop", 0.03)
        recorder.sample()
        os.waitpid(pid, os.WUNTRACED)
        os.kill(pid, signal.SIGCONT)
        os.waitpid(pid, 0)
        recorder.sample()
        row = last_row(recorder, pid)
        assert row.processes == 0
        assert row.end_boottime is not None


def used_again(pid: int) -> int:
    """The same pid, of another process that has burned a little."""
    last_pid = "/proc/sys/kernel/ns_last_pid"
    for _ in range(300):
        with open(last_pid, "w") as file:
            file.write(str(pid - 1))
        second = child(0.1, "stop")
        if second == pid:
            break
        os.kill(second, signal.SIGKILL)
        os.waitpid(second, 0)
    assert second == pid, "others took the pid"
    os.waitpid(second, os.WUNTRACED)
    return second


@pytest.mark.parametrize("hears", [True, False], ids=["lifeline", "samples"])
def test_a_pid_that_is_used_again_at_once_is_two_jobs(hears: bool) -> None:
    if os.geteuid() != 0 or not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        pytest.skip("needs root and a kernel that lets the next pid be chosen")
    with recording(Config(lifeline=Lifeline(connector="auto" if hears else "none"))) as recorder:
        recorder.sample()
        first = child(0.1, "stop", 0.2)
        os.waitpid(first, os.WUNTRACED)
        recorder.sample()
        os.kill(first, signal.SIGCONT)
        os.waitpid(first, 0)
        died = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        second = used_again(first)
        recorder.sample()
        let_pass(0.5)
        recorder.sample()
        os.kill(second, signal.SIGKILL)
        os.waitpid(second, 0)
        recorder.sample()
    rows = {row.start_ticks: row for sample in recorder.samples for row in sample.job if row.pgid == first}
    earlier, later = (row for _, row in sorted(rows.items()))
    end = earlier.end_boottime or earlier.end_boottime_low or 0
    assert end <= died, "it had ended before its pid was used again"
    if hears:
        assert cpu(earlier) == pytest.approx(0.3, abs=0.04)
        assert cpu(later) == pytest.approx(0.1, abs=0.04)


def test_a_parent_that_waits_while_clocks_are_read_counts_its_child_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child is gone and its parent seemed to sleep: it must be read all the same."""
    with recording(Config(lifeline=Lifeline(connector="none"))) as recorder:
        parent = os.fork()
        if not parent:
            os.setpgid(0, 0)
            if not (pid := os.fork()):
                burn(0.3)
                os._exit(0)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.waitpid(pid, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(parent, os.WUNTRACED)
        recorder.sample()
        recorder.sample()
        os.kill(parent, signal.SIGCONT)
        os.waitpid(parent, os.WUNTRACED)
        with monkeypatch.context() as patch:
            patch.setattr(recorder.collector.table, "ran", list)
            recorder.sample()
        recorder.sample()
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
    assert cpu(last_row(recorder, parent)) == pytest.approx(0.3, abs=0.04)


def test_many_small_children_lose_nothing_to_rounding(recorder: Recorder) -> None:
    """Each is cut to whole ticks in /proc; their sum must not be."""
    before = os.times()
    parent = os.fork()
    if not parent:
        os.setpgid(0, 0)
        for _ in range(40):
            if not (pid := os.fork()):
                burn(0.006)
                os._exit(0)
            os.waitpid(pid, 0)
        os._exit(0)
    while not os.waitid(os.P_PID, parent, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        recorder.sample()
        let_pass(0.05)
    os.waitpid(parent, 0)
    after = os.times()
    recorder.sample()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert cpu(last_row(recorder, parent)) == pytest.approx(used, abs=0.05)


def family(members: int, seconds: float, waits: bool = True) -> tuple[int, int]:
    """A parent in a group of its own whose children end at once; when told, it waits for them or not, and ends."""
    told, tell = os.pipe()
    parent = os.fork()
    if not parent:
        os.setpgid(0, 0)
        for _ in range(members):
            if not os.fork():
                burn(seconds)
                os._exit(0)
        os.read(told, 1)
        for _ in range(members if waits else 0):
            os.wait()
        os._exit(0)
    os.close(told)
    return parent, tell


def children_used(before: os.times_result) -> float:
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "left to others"])
def test_zombies_that_a_sample_saw_count_once(recorder: Recorder, waits: bool) -> None:
    """The lifeline read their last figures, a sample saw them too, and then somebody's counters have them."""
    parent, tell = family(12, 0.05, waits)
    let_pass(1.0)  # long enough for the lifeline to bury them
    recorder.sample()
    os.write(tell, b"x")
    os.close(tell)
    os.waitpid(parent, 0)
    for _ in range(3):
        let_pass(0.3)
        recorder.sample()
    assert cpu(last_row(recorder, parent)) == pytest.approx(
        12 * 0.06, abs=0.3
    )  # forking costs, too; twice would be 1.2


def test_a_whole_family_between_two_samples_counts_once(recorder: Recorder) -> None:
    """Of the parent all figures are known, since it was a zombie itself: its children are in those and nowhere else."""
    before = os.times()
    parent, tell = family(12, 0.02)
    let_pass(1.3)  # shorter groups belong to the job that started them
    os.write(tell, b"x")
    os.close(tell)
    os.waitid(os.P_PID, parent, os.WEXITED | os.WNOWAIT)
    let_pass(0.6)
    os.waitpid(parent, 0)
    recorder.sample()
    assert cpu(last_row(recorder, parent)) == pytest.approx(children_used(before), abs=0.04)


def test_a_short_child_of_another_user_counts_for_that_user(recorder: Recorder) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    other = 54321 + os.getpid() % 1000
    pid = os.fork()
    if not pid:
        os.setuid(other)
        burn(0.1)
        os._exit(0)
    os.waitpid(pid, 0)
    let_pass(0.3)
    recorder.sample()
    theirs = {
        (info.pgid, info.start_ticks)
        for sample in recorder.samples
        for info in sample.job_info
        if info.user_id == other
    }
    rows = [row for row in recorder.samples[-1].job if (row.pgid, row.start_ticks) in theirs]
    assert sum(map(cpu, rows)) == pytest.approx(0.1, abs=0.03)


def test_a_job_whose_last_member_goes_elsewhere_ends_then(recorder: Recorder) -> None:
    """setpgid(2) has no event: the end lies between two looks."""
    told, tell = os.pipe()
    leader = os.fork()
    if not leader:
        os.setpgid(0, 0)
        if not os.fork():
            os.read(told, 1)
            os.setpgid(0, 0)
            let_pass(1.5)
            os._exit(0)
        os._exit(0)
    os.waitpid(leader, 0)
    let_pass(1.2)
    recorder.sample()
    assert last_row(recorder, leader).processes == 1
    os.write(tell, b"x")
    left = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    let_pass(0.5)
    recorder.sample()
    row = last_row(recorder, leader)
    assert (row.processes, row.end_boottime) == (0, None)
    assert row.end_boottime_low is not None
    assert row.end_boottime_high is not None
    assert row.end_boottime_low <= left <= row.end_boottime_high


def test_without_the_lifeline_a_zombie_has_ended() -> None:
    """Its parent waits much later: the job lasted until it was first seen as a zombie, at most."""
    with recording(Config(lifeline=Lifeline(connector="none"))) as recorder:
        recorder.sample()
        pid = child("stop")
        os.waitpid(pid, os.WUNTRACED)
        alive = recorder.sample()
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        recorder.sample()
        found = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        let_pass(0.3)
        recorder.sample()
        os.waitpid(pid, 0)
        recorder.sample()
        row = last_row(recorder, pid)
    assert row.end_boottime_low == alive.boottime
    assert row.end_boottime_high is not None
    assert ended <= row.end_boottime_high <= found


def test_members_that_no_sample_saw_are_counted(recorder: Recorder) -> None:
    """A shell that starts one short command after the other: how many, and not only what they used."""
    loop = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; echo; read line"
    shell = subprocess.Popen(
        ["sh", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    assert shell.stdout is not None
    recorder.sample()
    shell.stdout.readline()
    recorder.sample()
    let_pass(0.5)
    recorder.sample()
    shell.communicate()
    row = last_row(recorder, shell.pid)
    started = (row.processes_seen or 0) + (row.processes_unseen or 0)
    # One that ends while a sample is taken may count as seen and as unseen, or as neither.
    assert started == pytest.approx(201, abs=4)
