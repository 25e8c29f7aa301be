"""Ticks, clocks, and what is noticed about them."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.daemon.fakes import FakeClock
from vmsonar.host.clock import ClockWatch, MissedTicks, Schedule, node_offset

SECOND = 10**9


def test_ticks_are_at_multiples_plus_the_offset_of_the_node():
    schedule = Schedule(10 * SECOND, "machine")
    offset = node_offset("machine", 10 * SECOND)
    wall = 1_763_000_003 * SECOND
    tick = wall + schedule.wait_from(wall)
    assert (tick - offset) % (10 * SECOND) == 0
    assert tick - wall <= 15 * SECOND


def test_the_offsets_of_a_fleet_are_spread():
    offsets = [node_offset(f"machine-{number}", 10 * SECOND) for number in range(1000)]
    assert all(0 <= offset < 10 * SECOND for offset in offsets)
    per_second = [sum(offset // SECOND == second for offset in offsets) for second in range(10)]
    assert min(per_second) > 50
    assert node_offset("machine-7", 10 * SECOND) == offsets[7]


@pytest.mark.parametrize("early", [0, 1, SECOND // 1000, 4 * SECOND])
def test_waking_early_does_not_take_a_tick_twice(early):
    schedule = Schedule(10 * SECOND, "m")
    first = 50 * SECOND + schedule.wait_from(50 * SECOND)
    assert schedule.wait_from(first - early) == 10 * SECOND + early


def test_ticks_that_were_missed_are_skipped():
    schedule = Schedule(10 * SECOND, "m")
    first = 50 * SECOND + schedule.wait_from(50 * SECOND)
    assert schedule.wait_from(first + 32 * SECOND) == 8 * SECOND


def test_quiet_clocks_tell_nothing():
    clock = FakeClock()
    watch = ClockWatch(clock)
    clock.move(10 * SECOND, wall=SECOND // 10)
    assert watch.events() == []


def test_a_step_of_the_wall_clock():
    clock = FakeClock()
    watch = ClockWatch(clock)
    clock.move(10 * SECOND, wall=-3600 * SECOND)
    (event,) = watch.events()
    assert (event.event_type, event.amount) == ("clock_step", -3600 * SECOND)
    clock.move(10 * SECOND)
    assert watch.events() == []


def test_a_machine_that_slept():
    clock = FakeClock()
    watch = ClockWatch(clock)
    clock.move(10 * SECOND, asleep=500 * SECOND)
    (event,) = watch.events()
    assert (event.event_type, event.amount) == ("resume", 500 * SECOND)


def test_a_machine_that_slept_and_was_set_right():
    clock = FakeClock()
    watch = ClockWatch(clock)
    clock.move(10 * SECOND, asleep=500 * SECOND, wall=7 * SECOND)
    assert [(event.event_type, event.amount) for event in watch.events()] == [
        ("resume", 500 * SECOND),
        ("clock_step", 7 * SECOND),
    ]


@pytest.mark.parametrize(
    ("waited", "missed"), [(0.5, 0), (1.0, 0), (1.1, 0), (1.5, 0), (1.9, 1), (2.0, 1), (7.0, 6), (100.0, 99)]
)
def test_ticks_between_two_that_were_waited_for(waited, missed):
    schedule = Schedule(10**9, "m")
    assert schedule.between(5 * 10**9, int((5 + waited) * 10**9)) == missed


def test_missed_ticks_are_told_until_somebody_has_heard():
    book = MissedTicks()
    assert book.rows() == []
    since = datetime(2026, 11, 16, tzinfo=UTC)
    book.add(3, since)
    book.add(0, since + timedelta(seconds=9))
    book.add(-1, since)
    book.add(2, since + timedelta(seconds=10))
    for _ in range(2):
        (row,) = book.rows()
        assert (row.collector, row.reason, row.lost, row.since) == ("schedule", "missed", 5, since)
    book.told()
    assert book.rows() == []
    assert book.total == 5
