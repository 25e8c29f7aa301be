"""What was said to be safe is there, exactly, when the recorder was killed and its disk failed."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import wait_for
from tests.faults.saving import Saving, given_twice


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Saving]:
    one = Saving(tmp_path)
    yield one
    one.close()


def test_a_full_disk_after_a_kill_costs_nothing_that_was_said_to_be_safe(saving: Saving) -> None:
    """Repairing fails at the next start: its numbers must not be those of records that were sent before."""
    saving.start()
    wait_for(lambda: len(saving.recorded()) > 60)
    done = saving.teardown()
    assert done.returncode == 0, done.stderr
    saving.kill()
    before = saving.recorded()
    saving.faults.set("open ENOSPC * path=.tmp", "write ENOSPC * path=journal")
    saving.start()
    wait_for(lambda: len(saving.recorded()) > len(before) + 60)
    done = saving.teardown()
    assert done.returncode == 0, done.stderr
    seen = saving.bundled() & saving.forwarded()
    assert len(seen - set(before)) > 50, "what the second run wrote is said to be safe, and is"
    assert saving.faults.happened()[("open", "ENOSPC")]
    saving.faults.clear()
    assert saving.stop() == 0
    done = saving.teardown()
    assert done.returncode == 0, done.stderr
    recorded = saving.recorded()
    assert set(before) <= set(recorded)
    assert given_twice(recorded) == []
    assert set(recorded) == saving.bundled() == saving.forwarded()


def test_a_new_segment_on_a_stalled_disk_does_not_stop_sampling(saving: Saving) -> None:
    saving.start()
    wait_for(lambda: len(saving.recorded()) > 20)
    saving.faults.set("fsync STALL=30 *", "fdatasync STALL=30 *")
    for segment in saving.archive.glob("2*/*/*/sample-*.zst"):
        segment.unlink()  # the next sample is lost, the one after it begins a new segment in the same folder
    began = time.monotonic()
    wait_for(lambda: len(saving.recorded()) > 20, seconds=25)
    assert time.monotonic() - began < 25, "before any stalled call has come back"
    assert any(action == "STALL" for _, action in saving.faults.happened())
    saving.faults.clear()
    assert saving.stop() == 0
