"""Memory of jobs against what was touched, and the rules by which shared pages are counted once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.collectors.process import work
from tests.collectors.process.recorder import Recorder, recording
from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.footprint import PF_FORKNOEXEC
from vmsonar.collectors.process.model import Job, Process
from vmsonar.collectors.process.sharing import private_estimate
from vmsonar.collectors.process.wire import Account

MB = 1 << 20
TOUCHED = 300 * MB

_TOUCH = f"""
import mmap, os, sys
area = mmap.mmap(-1, {TOUCHED}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, {TOUCHED}, 4096): area[page] = 1
"""
_SAY_AND_WAIT = "os.write(1, b'ready'); sys.stdin.read()"
_FORK_FOUR = """
import signal
pids = []
for _ in range(4):
    pids.append(os.fork())
    if pids[-1] == 0: signal.pause()
"""


@contextmanager
def job_of(code: str, recorder: Recorder) -> Iterator[int]:
    with work.spawn(code) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        recorder.sample()
        recorder.sample()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_job_has_the_memory_it_touched() -> None:
    with recording() as recorder, job_of(_TOUCH + _SAY_AND_WAIT, recorder) as pgid:
        row = recorder.job_rows(pgid)[-1]
        assert row.memory == pytest.approx(TOUCHED, rel=0.05)
        assert row.memory_source == "sum"


@pytest.mark.parametrize("source", ["pss", "estimate"])
def test_memory_that_four_forks_share_counts_once(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if source == "estimate":
        monkeypatch.setattr(ProcessFiles, "smaps_rollup", lambda files, process: None)
    with recording() as recorder, job_of(_TOUCH + _FORK_FOUR + _SAY_AND_WAIT, recorder) as pgid:
        row = recorder.job_rows(pgid)[-1]
        assert row.processes == 5
        assert row.resident is not None
        assert row.resident > 5 * TOUCHED
        assert row.memory == pytest.approx(TOUCHED, rel=0.05)
        assert row.memory_source == source


@pytest.mark.parametrize("source", ["pss", "estimate"])
def test_a_fork_that_writes_has_pages_of_its_own(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = f"\nfor page in range(0, {100 * MB}, 4096): area[page] = 2\n"
    code = f"{_TOUCH}\npid = os.fork()\nif pid == 0:\n    import signal{write.replace(chr(10), chr(10) + '    ')}"
    code += "os.write(1, b'ready'); signal.pause()\nsys.stdin.read()"
    if source == "estimate":
        monkeypatch.setattr(ProcessFiles, "smaps_rollup", lambda files, process: None)
    with recording() as recorder, job_of(code, recorder) as pgid:
        row = recorder.job_rows(pgid)[-1]
        assert row.memory == pytest.approx(TOUCHED + 100 * MB, rel=0.05)
        assert row.memory_source == source


def member(pid: int, anonymous: int, shared: int = 0, ppid: int = 1, forked: bool = False) -> Process:
    process = Process(str(pid))
    process.ppid, process.resident, process.shared = ppid, anonymous + shared, shared
    process.flags = PF_FORKNOEXEC if forked else 0
    process.inherit(None)
    return process


def job_with(*members: Process) -> Job:
    job = Job(10, 0, "", is_shown=True)
    for process in members:
        job.join(process)
        job.weigh(process)
    return job


def test_shared_memory_counts_once() -> None:
    one, other = member(10, 5 * MB, shared=200 * MB), member(11, 7 * MB, shared=150 * MB)
    job = job_with(one, other)
    for process in (one, other):
        process.files, process.shmem, process.is_resized = 0, process.shared or 0, True
        job.weigh(process)
    assert job.memory.settle() == (212 * MB, 212 * MB, 362 * MB, "estimate")
    for process in (one, other):
        process.pss_shared = 175 * MB
    job.memory.is_stale = True
    assert job.memory.settle() == (362 * MB, 362 * MB, 362 * MB, "pss")
    one.resident = 5 * MB
    one.shared = 0
    one.is_resized = True
    job.weigh(one)
    assert job.memory.settle().value == 162 * MB
    job.leave(other)
    assert job.memory.settle() == (5 * MB, 5 * MB, 5 * MB, "sum")


def test_what_may_be_file_or_shared_memory_is_in_the_upper_bound() -> None:
    job = job_with(member(10, 5 * MB, shared=200 * MB))
    assert job.memory.settle() == (5 * MB, 5 * MB, 205 * MB, "sum")


def test_what_was_inherited_from_a_parent_that_is_gone_counts_once() -> None:
    forks = [member(pid, 100 * MB, ppid=9, forked=True) for pid in (10, 11, 12)]
    assert job_with(*forks).memory.settle() == (100 * MB, 100 * MB, 300 * MB, "estimate")


def test_small_forks_are_not_asked_about_but_marked() -> None:
    job = job_with(member(9, 3 * MB), *[member(pid, 2 * MB, ppid=9, forked=True) for pid in (10, 11, 12)])
    assert job.memory.settle() == (9 * MB, 3 * MB, 9 * MB, "estimate")
    assert (job.memory.row_fields()["memory_low"], job.memory.row_fields()["memory_high"]) == (3 * MB, 9 * MB)


def account(
    peak: int, begun: int = 0, ended: int = 10, faults: int = 0, forked: bool = False, whole: bool = True
) -> Account:
    return Account(
        pid=20, ppid=10, uid=0, name="x", ended_after=ended, ended=ended, elapsed=ended - begun, exit_status=0,
        user_ns=0, system_ns=0, cpu_low_ns=0, cpu_high_ns=0, waited_ns=0, minor_faults=faults, major_faults=0,
        peak_rss=peak, read_bytes=0, write_bytes=0, cancelled_write_bytes=0, read_chars=0, write_chars=0,
        threads=1, is_forked=forked, is_whole=whole, is_process=True,
    )  # fmt: skip


def peak_of(job: Job) -> tuple[int, int | None, int | None, str]:
    job.memory.settle()
    fields = job.memory.row_fields()
    names = ("memory_peak", "memory_peak_low", "memory_peak_high", "memory_peak_source")
    return tuple(fields[name] for name in names)  # type: ignore[return-value]


def test_a_peak_from_accounts_is_taken_over() -> None:
    job = job_with(member(10, 50 * MB))
    job.memory.settle()
    job.memory.note_account(account(200 * MB), None)
    assert peak_of(job) == (200 * MB, 50 * MB, 250 * MB, "accounts")
    job.memory.note_account(account(20 * MB), None)
    assert peak_of(job)[0] == 200 * MB


def test_members_that_lived_at_one_time_add_up_in_the_bound_and_others_do_not() -> None:
    job = job_with(member(10, 50 * MB))
    job.memory.settle()
    for begun, ended in ((0, 10), (11, 20), (21, 40), (30, 50)):
        job.memory.note_account(account(200 * MB, begun, ended), None)
    assert peak_of(job) == (200 * MB, 50 * MB, 450 * MB, "accounts")


def test_a_fork_that_nobody_saw_counts_without_what_it_shares_with_its_parent() -> None:
    parent = member(10, 300 * MB)
    job = job_with(parent)
    job.memory.settle()
    job.memory.note_account(account(300 * MB, faults=10, forked=True), parent)
    assert peak_of(job) == (300 * MB + 10 * 4096, None, None, "accounts")
    job.memory.note_account(account(1300 * MB, faults=1000 * 256, forked=True), parent)
    assert peak_of(job) == (1300 * MB, 300 * MB, 1300 * MB, "accounts")


def test_a_job_of_which_nothing_is_known_has_no_peak() -> None:
    job = Job(10, 0, "", is_shown=True)
    job.memory.note_unseen(None)
    assert peak_of(job) == (None, None, None, "sampled")
    zombie = member(10, 0)
    zombie.grown = 80 * MB
    assert peak_of(job_with(zombie))[:3] == (None, None, 80 * MB)


def test_marks_of_one_interval_add_up_and_those_of_before_do_not() -> None:
    members = [member(pid, 10 * MB) for pid in (10, 11)]
    for process in members:
        process.files, process.mark, process.grown, process.is_marked = 0, 60 * MB, 80 * MB, True
    job = job_with(*members)
    job.memory.settle()
    assert (job.memory.peak, job.memory.peak_low, job.memory.peak_high) == (70 * MB, 20 * MB, 120 * MB)
    for process in members:
        process.mark, process.grown, process.is_marked, process.is_resized = 100 * MB, 200 * MB, True, True
        job.weigh(process)
    job.memory.settle()
    assert (job.memory.peak, job.memory.peak_low, job.memory.peak_high) == (200 * MB, 20 * MB, 200 * MB)


@pytest.mark.parametrize(
    ("anonymous", "inherited", "faults", "own"),
    [
        (100 * MB, 100 * MB, 0, 0),
        (100 * MB, 100 * MB, 256, 1 * MB),
        (150 * MB, 100 * MB, 50 * 256, 50 * MB),
        (150 * MB, 100 * MB, 60 * 256, 60 * MB),
        (150 * MB, 100 * MB, 25, 50 * MB),  # huge pages: one fault brings 2 MB
        (100 * MB, 100 * MB, 10**6, 100 * MB),
    ],
)
def test_the_estimate_of_a_forks_own_pages(anonymous: int, inherited: int, faults: int, own: int) -> None:
    assert private_estimate(anonymous, inherited, faults) == own
