"""Memory of jobs and its peak, held against the kernel: for one who may look at pages and for one who may not."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from vmsonar_archive.records import Sample

from tests.collectors.process import memory_work
from tests.collectors.process.memory_work import MB, Job, bounds, job, peak_bounds, recorder
from tests.collectors.process.recorder import Recorder, recording
from tests.parts import requires
from tests.real.wait import wait_until
from vmsonar.collectors.process.jobs import Last
from vmsonar.config.schema import Accounts, Config

pytestmark = requires("root")

WHO = ["root", "stranger"]
_POOL = Path("/proc/sys/vm/nr_hugepages")


def check(recorder: Recorder, job: Job, truth: int) -> None:
    """The figure is right, or is marked and lies between bounds that hold."""
    row = recorder.job_rows(job.pgid)[-1]
    low, high = bounds(row)
    said = f"{row.memory_source} {low / MB:.1f} {(row.memory or 0) / MB:.1f} {high / MB:.1f} MB, truth {truth / MB:.1f}"
    assert low <= truth * 1.05, said
    assert high >= truth * 0.95, said
    least, most = peak_bounds(row)
    said += (
        f"; peak {row.memory_peak_source} {least / MB:.1f} {(row.memory_peak or 0) / MB:.1f} {most / MB:.1f}"
    )
    assert (row.memory_peak or 0) >= (row.memory or 0), said
    assert most >= truth * 0.95, said
    print(said)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(
    "code",
    ["PLAIN", "THREADS", "OWN_SEGMENTS", "ONE_SEGMENT", "MAPPED_FILE", "POOL", "PREFORK", "PARENT_WRITES"],
)
def test_memory_is_right_or_between_its_bounds(who: str, code: str) -> None:
    with recorder(who) as records, job(getattr(memory_work, code)) as running:
        records.sample()
        records.sample()
        check(records, running, running.truth())
        row = records.job_rows(running.pgid)[-1]
        if who == "root" or code in ("PLAIN", "THREADS", "MAPPED_FILE", "PREFORK", "PARENT_WRITES"):
            assert row.memory == pytest.approx(running.truth(), rel=0.05)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("code", ["PREFORK", "PARENT_WRITES"])
def test_late_copies_show_though_everyone_sleeps_again(who: str, code: str) -> None:
    with recorder(who) as records, job(getattr(memory_work, code)) as running:
        records.sample()
        records.sample()
        running.go_on()
        records.sample()
        records.sample(later=61)
        check(records, running, running.truth())
        row = records.job_rows(running.pgid)[-1]
        assert row.memory == pytest.approx(running.truth(), rel=0.05)
        assert row.memory_source == ("pss" if who == "root" else "estimate")


@pytest.fixture
def pool() -> Iterator[None]:
    # Added and taken away again: another test may have pages of its own.
    before = int(_POOL.read_text())
    _POOL.write_text(str(before + 100))
    added = int(_POOL.read_text()) - before
    if added == 100:
        yield
    _POOL.write_text(str(max(0, int(_POOL.read_text()) - added)))
    if added < 100:
        pytest.skip("the kernel has no 100 huge pages left")


@pytest.mark.parametrize("who", WHO)
@pytest.mark.usefixtures("pool")
def test_huge_pages_of_the_pool_count_once(who: str) -> None:
    with recorder(who) as records:
        records.sample()
        with job(memory_work.HUGE) as one, job(memory_work.HUGE_SHARED) as shared:
            records.sample()
            records.sample()
            check(records, one, one.truth())
            assert (records.job_rows(one.pgid)[-1].memory or 0) >= 64 * MB
            check(records, shared, shared.truth() + 64 * MB)
            row = records.job_rows(shared.pgid)[-1]
            assert 64 * MB <= (row.memory or 0) < 64 * MB + 40 * MB


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("code", ["CLONE_VM", "VFORK"])
def test_one_address_space_counts_once(who: str, code: str) -> None:
    with recorder(who) as records, job(getattr(memory_work, code)) as running:
        wait_until(lambda: len(running.members()) == 2, 10, "the clone")
        records.sample()
        records.sample()
        truth = running.truth(pids=[running.pgid])
        check(records, running, truth)
        assert records.job_rows(running.pgid)[-1].memory == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("who", WHO)
def test_a_process_whose_main_thread_ended_keeps_its_memory(who: str) -> None:
    with recorder(who) as records, job(memory_work.DEAD_MAIN) as running:
        records.sample()
        assert (records.job_rows(running.pgid)[-1].memory or 0) == pytest.approx(105 * MB, rel=0.05)
        running.go_on()
        records.sample()
        (process,) = {row.pid for row in records.samples[-1].process if row.pgid == running.pgid}
        row = records.process_rows(process)[-1]
        assert row.state == "Z"
        assert (row.resident or 0) > 200 * MB
        assert (records.job_rows(running.pgid)[-1].memory or 0) == pytest.approx(205 * MB, rel=0.05)


@pytest.mark.parametrize("who", WHO)
def test_a_spike_between_two_samples_is_in_the_peak(who: str) -> None:
    with recorder(who) as records, job(memory_work.SPIKE) as running:
        records.sample()
        records.sample()
        before = running.truth()
        running.go_on()
        records.sample()
        row = records.job_rows(running.pgid)[-1]
        assert row.memory == pytest.approx(before, rel=0.05)
        assert row.memory_peak == pytest.approx(before + 1500 * MB, rel=0.05)
        assert row.memory_peak_source == "high_water"
        low, high = peak_bounds(row)
        assert low == pytest.approx(before, rel=0.05)
        assert high == pytest.approx(before + 1500 * MB, rel=0.02)
        process = records.process_rows(running.pgid)[-1]
        assert (process.resident_peak or 0) > 1500 * MB


def test_what_lived_between_two_samples_makes_the_peak_a_lower_bound() -> None:
    with recording() as records, job(memory_work.CHILD_SPIKE) as running:
        records.sample()
        records.sample()
        assert records.job_rows(running.pgid)[-1].memory_peak_source == "high_water"
        running.go_on()
        records.sample()
        row = records.job_rows(running.pgid)[-1]
        assert row.memory_peak_source == "sampled"
        assert row.memory_peak_high is None


#: A gibibyte for a while, in a process that ends: led by itself, or in the group of who started it.
GIB = 1 << 30
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_GROW = f"import ctypes, mmap, time; time.sleep(0.3); data = mmap.mmap(-1, {GIB}, flags={_PRIVATE})\n"
_GROW += f"ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(data)), 1, {GIB}); time.sleep(1.5)"
_FORK = f"import os\nif os.fork() == 0:\n  {_GROW.replace(chr(10), chr(10) + '  ')}\n  os._exit(0)\nos.wait()"


@contextmanager
def knowing(what: str, folder: Path) -> Iterator[Recorder]:
    """A recorder that hears of births and deaths, and reads the kernel's accounts of what ended if it shall."""
    use = "auto" if what == "accounts" else "none"
    accounts = Accounts(use=use, start=use, socket=str(folder / "none.sock"))
    with recording(Config(accounts=accounts)) as records:
        records.sample()
        has_accounts = records.collector._memory
        wait_until(
            lambda: records.sample() is None or use == "none" or has_accounts.has_accounts, 30, "accounts"
        )
        yield records


@requires("connector", "taskstats")
@pytest.mark.slow
@pytest.mark.parametrize("code", [_GROW, _FORK], ids=["one", "fork"])
@pytest.mark.parametrize("what", ["lifeline", "accounts"])
def test_the_peak_of_a_group_that_lived_between_two_samples(what: str, code: str, tmp_path: Path) -> None:
    with knowing(what, tmp_path) as records:
        process = subprocess.Popen([sys.executable, "-c", code], process_group=0)
        process.wait(60)
        records.sample()
    (row,) = records.job_rows(process.pid)
    assert row.processes == 0
    assert row.memory_peak == pytest.approx(GIB, rel=0.05)
    assert row.memory_peak_source == ("sampled" if what == "lifeline" else "accounts")
    assert peak_bounds(row)[1] >= GIB


@requires("connector", "taskstats")
@pytest.mark.slow
@pytest.mark.parametrize("code", [_GROW, _FORK], ids=["one", "fork"])
@pytest.mark.parametrize("what", ["lifeline", "accounts"])
def test_the_peak_of_a_child_that_lived_between_two_samples(what: str, code: str, tmp_path: Path) -> None:
    run = f"subprocess.run([sys.executable, '-c', {code!r}])" if code == _GROW else code
    with knowing(what, tmp_path) as records, job(f"say(); hear()\n{run}") as running:
        records.sample()
        running.go_on()
        records.sample()
        row = records.job_rows(running.pgid)[-1]
    assert (row.memory or 0) < GIB // 10
    assert row.memory_peak == pytest.approx(GIB, rel=0.05)
    assert row.memory_peak_source == ("sampled" if what == "lifeline" else "accounts")
    assert peak_bounds(row)[1] >= GIB


@requires("connector", "taskstats")
@pytest.mark.slow
def test_accounts_tell_the_last_mark_of_one_that_samples_saw(tmp_path: Path) -> None:
    with knowing("accounts", tmp_path) as records:
        process = subprocess.Popen([sys.executable, "-c", f"import sys; sys.stdin.read(1)\n{_GROW}"],
                                   process_group=0, stdin=subprocess.PIPE)  # fmt: skip
        records.sample()
        records.sample()
        process.communicate(b".")
        records.sample()
    row = records.job_rows(process.pid)[-1]
    assert (row.processes, row.memory_peak_source) == (0, "high_water")
    assert row.memory_peak == pytest.approx(GIB, rel=0.05)
    assert peak_bounds(row)[1] == pytest.approx(GIB, rel=0.1)


def _own_peak(sample: Sample) -> int:
    return sum(row.memory_peak or 0 for row in sample.job if row.pgid == os.getpgrp())


@requires("connector", "taskstats")
@pytest.mark.slow
def test_the_account_of_a_zombie_waits_for_its_end(tmp_path: Path) -> None:
    with knowing("accounts", tmp_path) as records:
        records.sample()
        before = _own_peak(records.samples[-1])  # of all that run these tests, which may be much
        process = subprocess.Popen([sys.executable, "-c", _GROW], process_group=0)
        wait_until(lambda: _state(process.pid) == "Z", 60, "the zombie")
        records.sample()
        assert records.job_rows(process.pid)[-1].processes == 1
        process.wait()
        records.sample()
        assert max(map(_own_peak, records.samples[-2:])) < before + GIB / 2
    row = records.job_rows(process.pid)[-1]
    assert row.memory_peak == pytest.approx(GIB, rel=0.05)
    assert (row.memory_peak_source, peak_bounds(row)[1] < 1.1 * GIB) == ("accounts", True)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_peak_outlives_the_daemon() -> None:
    with job(memory_work.SPIKE) as running:
        with recording() as records:
            records.sample()
            running.go_on()
            records.sample()
        last = records.samples[-1]
        (before,) = [row for row in last.job if row.pgid == running.pgid]
        with recording(last=Last(last)) as records:
            records.sample()
            records.sample()
            (after,) = [row for row in records.samples[-1].job if row.pgid == running.pgid]
    assert (before.memory_peak or 0) > 1500 * MB
    assert after.memory_peak == before.memory_peak
    assert after.memory_peak_source == before.memory_peak_source == "high_water"
    assert peak_bounds(after) == peak_bounds(before)
