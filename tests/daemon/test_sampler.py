import io
import itertools
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from vmsonar_archive.records import EventRow, GapRow

from tests.daemon.fakes import Fake, Hangs, Raises
from tests.real.wait import wait_until
from vmsonar.collectors.base import Tick
from vmsonar.daemon.log import Log
from vmsonar.daemon.sampler import Sampler, failure
from vmsonar.host.clock import Clock

START = datetime(2026, 11, 16, tzinfo=UTC)


def tick(number=0, fresh=False):
    return Tick(time=START + timedelta(seconds=number), boottime=number, boot="b", fresh=fresh)


def sampler(*collectors, interval=10.0):
    log = Log(stream=io.StringIO(), environment={})
    made = Sampler(collectors, interval, Clock(), log)
    made.log = log._stream
    return made


def gaps(rows):
    return [msgspec.json.decode(row, type=GapRow) for row in rows.by_kind.get("gap", [])]


def test_one_that_raises_yields_a_gap_and_the_others_go_on():
    broken = Raises()
    subject = sampler(broken, Fake())
    first = subject.sample(tick())
    assert gaps(first) == [
        GapRow(collector="raises", reason="error", detail="ValueError: cannot count\nto three")
    ]
    assert len(first.by_kind["node"]) == 1
    assert gaps(subject.sample(tick(1))) == []
    assert gaps(subject.sample(tick(2, fresh=True)))[0].since == START
    broken.broken = False
    assert gaps(subject.sample(tick(3))) == []
    broken.broken = True
    assert gaps(subject.sample(tick(4)))[0].since is None
    assert subject.log.getvalue().count("\n") == 3, "once per change, each in one line"


def test_one_that_hangs_is_given_up_and_not_asked_again_until_it_is_back():
    hanging = Hangs()
    subject = sampler(hanging, Fake())
    started = time.monotonic()
    rows = [subject.sample(tick(number)) for number in range(3)]
    assert time.monotonic() - started < 20, "only the first sample waits for the limit"
    assert [len(gaps(one)) for one in rows] == [1, 0, 0]
    assert gaps(rows[0])[0].reason == "timeout"
    assert [len(one.by_kind["node"]) for one in rows] == [1, 1, 1]
    assert hanging.calls == 1
    hanging.released.set()
    ticks = itertools.count(3)

    def sample_it_again():
        rows.append(subject.sample(tick(next(ticks))))
        return hanging.calls == 2

    wait_until(sample_it_again, 20, "the one that hung")
    back = rows[-1]
    assert len(back.by_kind["node"]) == 2, "what it measured while it hung is of the past"
    event = msgspec.json.decode(back.by_kind["event"][0], type=EventRow)
    assert event.detail == "while it hung", "what it had to tell is not lost"
    assert "works again" in subject.log.getvalue()
    subject.close()


def test_no_collector_takes_more_than_half_an_interval():
    hanging = Hangs()
    hanging.time_limit = 30.0
    subject = sampler(hanging, interval=0.1)
    started = time.monotonic()
    assert gaps(subject.sample(tick()))[0].reason == "timeout"
    assert time.monotonic() - started < 15
    hanging.released.set()


def test_a_hurry_cuts_the_wait_short():
    hanging = Hangs()
    hanging.time_limit = 30.0
    subject = sampler(hanging)
    started = time.monotonic()
    subject.sample(tick(), hurry=lambda: True)
    assert time.monotonic() - started < 15
    hanging.released.set()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "no"), "permission"),
        (FileNotFoundError(2, "no"), "missing"),
        (OSError(95, "no"), "unsupported"),
        (OSError(5, "no"), "io_error"),
        (KeyError("x"), "error"),
    ],
)
def test_the_word_for_a_failure(error, reason):
    assert failure(error).reason == reason


def test_a_sentence_of_our_own_is_said_as_it_is():
    assert failure(OSError(95, "the kernel reports no pressure")).detail == "the kernel reports no pressure"
    assert failure(OSError(95, "no", "/proc/x")).detail == "OSError: [Errno 95] no: '/proc/x'"
