"""CPU time of jobs against what the kernel tells the parent (getrusage(2), wait4(2)), at an interval of 1 s."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.collectors.process import work
from tests.collectors.process.recorder import (
    HERTZ,
    Recorder,
    assert_never_decreases,
    bounds,
    recording,
    seconds,
)
from tests.collectors.process.work import Work

#: Each process has two figures (user, system), each cut to a tick of 10 ms: eight ticks are four processes.
RELATIVE, ABSOLUTE = 0.02, 8 / HERTZ

STARTS: dict[str, Callable[[Path], Work]] = {
    "one_thread": work.one_thread,
    "eight_threads": work.eight_threads,
    "shell_loop": work.shell_loop,
    "job_control": work.job_control,
    "double_fork": work.double_fork,
    "deaf_parent": work.deaf_parent,
}


@dataclass
class Recorded:
    recorder: Recorder
    works: dict[str, Work]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """All of them at once, so that they also get in each other's way; each has a parent of its own."""
    with recording() as recorder:
        recorder.sample()
        works = {name: start(tmp_path_factory.mktemp(name)) for name, start in STARTS.items()}
        recorder.until(lambda: all(one.is_done() for one in works.values()))
        for one in works.values():
            one.close()
        yield Recorded(recorder, works)


def last_total(recorded: Recorded, pgid: int) -> float:
    rows = recorded.recorder.job_rows(pgid)
    assert_never_decreases(rows)
    ends = recorded.recorder.ends(pgid)
    assert len(ends) == 1
    assert seconds(ends[0]) == seconds(rows[-1])
    assert rows[-1].processes == 0
    return seconds(ends[0])


@pytest.mark.parametrize("name", ["one_thread", "eight_threads", "shell_loop"])
def test_a_job_has_the_time_that_its_parent_was_told(recorded: Recorded, name: str) -> None:
    one = recorded.works[name]
    assert last_total(recorded, one.pgid) == pytest.approx(one.told(), rel=RELATIVE, abs=ABSOLUTE)
    last = recorded.recorder.job_rows(one.pgid)[-1]
    if last.unattributed:  # on a busy machine ends of several may fall into one look
        low, high = bounds(last)
        assert low - ABSOLUTE <= one.told() <= high + ABSOLUTE


def test_with_job_control_the_time_goes_to_the_job_and_not_to_the_shell(recorded: Recorded) -> None:
    one = recorded.works["job_control"]
    pgid = int((one.folder / "used.pgid").read_text())
    shell = int((one.folder / "shell").read_text())
    assert pgid != shell
    assert last_total(recorded, pgid) == pytest.approx(one.reported(), rel=RELATIVE, abs=ABSOLUTE)
    assert last_total(recorded, shell) < 0.1


def test_a_double_fork_is_followed_to_whoever_adopts_it(recorded: Recorded) -> None:
    one = recorded.works["double_fork"]
    assert last_total(recorded, one.pgid) == pytest.approx(one.told(), rel=RELATIVE, abs=ABSOLUTE)


def test_a_parent_that_ignores_sigchld_has_bounds_that_hold(recorded: Recorded) -> None:
    one = recorded.works["deaf_parent"]
    total = last_total(recorded, one.pgid)
    rows = recorded.recorder.job_rows(one.pgid)
    assert rows[-1].unattributed is True
    seen = max(seconds(row) for row in rows if row.processes == 2)
    assert seen <= total <= one.told() + one.reported() + ABSOLUTE
    low, high = bounds(rows[-1])
    assert low - ABSOLUTE <= one.told() + one.reported() <= high + ABSOLUTE
