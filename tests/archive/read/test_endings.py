"""How a boot ended, by the last that was recorded of it."""

from datetime import UTC, datetime, timedelta

import pytest
from vmsonar_archive.read.endings import Ending, Told, boot_before, boot_tails, machine_end
from vmsonar_archive.records import EventRow

from tests.making.archives import BOOT, START, open_writer, record

BEGIN = datetime(2026, 11, 16, 12, tzinfo=UTC)
STARTED, NOTICE = EventRow(event_type="daemon_start"), EventRow(event_type="teardown_notice")


def stop(reason=None):
    return EventRow(event_type="daemon_stop", reason=reason)


def told(*records, boot="one", run="r", every=10):
    """A record for each list of events."""
    times = [BEGIN + timedelta(seconds=at * every) for at in range(len(records))]
    return [
        Told(time=time, seq=at, run=run or str(at), boot=boot, boottime=at, event=events)
        for at, (time, events) in enumerate(zip(times, records, strict=True))
    ]


def end(records, followed=True):
    (tail,) = boot_tails(records)
    return machine_end(tail, followed)


@pytest.mark.parametrize(
    ("reason", "how"),
    [("poweroff", "orderly_poweroff"), ("halt", "orderly_poweroff"), ("reboot", "reboot"), ("kexec", "reboot"),
     ("stop", "stopped"), (None, "stopped"), ("a word of later", "stopped")],
)  # fmt: skip
def test_a_farewell_tells(reason, how):
    found = end(told([STARTED], [], [stop(reason)]))
    assert (found.how, found.time) == (how, BEGIN + timedelta(seconds=20))


def test_without_one_it_depends_on_what_comes_after():
    records = told([STARTED], [], [])
    assert end(records).how == Ending.NO_FAREWELL
    assert end(records, followed=False).how == Ending.UNKNOWN


def test_a_farewell_that_was_followed_by_more_is_none():
    assert end(told([STARTED], [stop("stop")], [STARTED], [])).how == Ending.NO_FAREWELL


def test_single_samples_never_say_farewell():
    assert end(told([], [], [], run="")).how == Ending.UNKNOWN


@pytest.mark.parametrize("last", [[stop("poweroff")], [], [stop(None)]])
def test_a_notice_explains_the_end_that_follows_it(last):
    found = end(told([STARTED], [NOTICE], last))
    assert found.how == Ending.RECLAIM_NOTICE
    assert "2026-11-16 12:00:10Z" in found.evidence


@pytest.mark.parametrize("last", [[stop("stop")], [stop("reboot")]])
def test_but_not_every_end(last):
    assert end(told([STARTED], [NOTICE], last)).how in (Ending.STOPPED, Ending.REBOOT)


def test_a_notice_that_was_outlived_explains_nothing():
    assert end(told([STARTED], [NOTICE], [], every=3600)).how == Ending.NO_FAREWELL


def test_each_boot_has_its_tail():
    records = told([STARTED], [stop("reboot")]) + told([STARTED], [], boot="two")
    assert [tail.boot for tail in boot_tails(records)] == ["one", "two"]


def test_an_archive_says_how_the_boot_before_ended(tmp_path):
    writer = open_writer(tmp_path / "archive")
    assert boot_before(tmp_path / "archive", BOOT) is None
    record(writer, 3)
    writer.close()
    assert boot_before(tmp_path / "archive", BOOT) is None
    found = boot_before(tmp_path / "archive", "another")
    assert (found.how, found.time) == (Ending.NO_FAREWELL, START + timedelta(seconds=20))
    assert boot_before(tmp_path / "nothing", BOOT) is None
