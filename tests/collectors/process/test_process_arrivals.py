"""Newcomers are found among the pids that were given out, without the list of all processes."""

import os
import threading
import time

import pytest

from tests.collectors.process import work
from tests.collectors.process.recorder import Recorder, recording
from vmsonar.collectors.process.table import PATIENCE


def counting_lists(recorder: Recorder) -> list[int]:
    """Counts how often the list is taken, by a table that believes it to be very long."""
    table = recorder.collector.table
    lists: list[int] = []
    names = table.files.names
    table._known |= {f"x{number}" for number in range(10**5)}

    def counted() -> list[str]:
        lists.append(1)
        return names()

    table.files.names = counted  # type: ignore[method-assign]
    return lists


def test_who_comes_and_who_goes_is_found_without_a_list() -> None:
    with recording() as recorder:
        for _ in range(3):
            recorder.sample()
        lists = counting_lists(recorder)
        with work.spawn("import sys; sys.stdin.readline()") as process:
            sample = recorder.sample()
            assert process.pid in {row.pid for row in sample.process}
            assert process.pid in {info.pid for info in sample.process_info}
            process.communicate()
        sample = recorder.sample()
        assert process.pid not in {row.pid for row in sample.process}
        assert len(recorder.ends(process.pid)) == 1
        # Somebody else's process that ends in the middle of a sample makes the next one take the list.
        assert len(lists) <= 1


def test_a_thread_is_no_newcomer() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(5)]
    with recording() as recorder:
        for _ in range(3):
            recorder.sample()
        counting_lists(recorder)
        for thread in threads:
            thread.start()
        try:
            pids = {row.pid for row in recorder.sample().process}
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert os.getpid() in pids
        assert not pids & {thread.native_id for thread in threads}


def given_out(*newest: int | None, lost: bool = False, known: int = 100) -> list[range | None]:
    """What a table makes of the last pids that it reads at samples a second apart."""
    with recording() as recorder:
        table = recorder.collector.table
        table._known = {str(number) for number in range(known)}
        answers = iter(newest)
        table.files.newest_pid = lambda: next(answers)  # type: ignore[method-assign]
        found = []
        for second in range(len(newest)):
            table._lost = {"7"} if lost else set()
            found.append(table._given_out(second * 10**9 + 1))
        return found


def test_each_pid_is_tried_at_two_samples() -> None:
    assert given_out(50, 52, 55, 55, 55) == [None, None, range(51, 56), range(53, 56), range(56, 56)]


@pytest.mark.parametrize(
    "newest", [(50, 52, None), (50, 40, 45), (50, 52, 300)], ids=["unknown", "wrapped", "many"]
)
def test_otherwise_the_list_is_taken(newest: tuple[int | None, ...]) -> None:
    assert given_out(*newest)[2] is None


def test_who_was_lost_is_looked_for_in_the_list() -> None:
    assert given_out(50, 52, 53, lost=True) == [None, None, None]


def test_the_list_is_taken_once_a_minute() -> None:
    with recording() as recorder:
        table = recorder.collector.table
        table.files.newest_pid = lambda: 50  # type: ignore[method-assign]
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        table._known = {"1"}
        found = [table._given_out(now + later) is None for later in (0, 1, 2, 3, PATIENCE + 2, PATIENCE + 3)]
        assert found == [True, True, False, False, True, False]
