"""Lives between two samples, by the real kernel: the look, the word and the wait come in any order."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from vmsonar_archive.records import JobRow

from tests.collectors.process.recorder import Recorder, recording
from tests.parts import requires
from tests.real.wait import let_pass

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
    sleeper = subprocess.Popen(["sleep", "30"], process_group=leader)
    os.kill(leader, signal.SIGCONT)
    os.waitpid(leader, 0)
    recorder.sample()
    sleeper.kill()
    sleeper.wait()
    recorder.sample()
    assert cpu(last_row(recorder, leader)) == pytest.approx(0.3, abs=0.04)


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


def test_a_pid_that_is_used_again_at_once_is_two_jobs(recorder: Recorder) -> None:
    last_pid = "/proc/sys/kernel/ns_last_pid"
    if os.geteuid() != 0 or not os.path.exists(last_pid):
        pytest.skip("needs root and a kernel that lets the next pid be chosen")
    first = child(0.1, "stop", 0.2)
    os.waitpid(first, os.WUNTRACED)
    recorder.sample()
    os.kill(first, signal.SIGCONT)
    os.waitpid(first, 0)
    for _ in range(50):
        with open(last_pid, "w") as file:
            file.write(str(first - 1))
        second = child(0.1, "stop")
        if second == first:
            break
        os.kill(second, signal.SIGKILL)
        os.waitpid(second, 0)
    assert second == first, "others took the pid"
    os.waitpid(second, os.WUNTRACED)
    recorder.sample()
    recorder.sample()
    os.kill(second, signal.SIGKILL)
    os.waitpid(second, 0)
    recorder.sample()
    rows = {row.start_ticks: row for sample in recorder.samples for row in sample.job if row.pgid == first}
    assert [cpu(row) for _, row in sorted(rows.items())] == [
        pytest.approx(0.3, abs=0.04),
        pytest.approx(0.1, abs=0.04),
    ]


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
