"""Who is alive, late, gone in order or lost, by when each was heard; and what speaks for the cause."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.records import EventRow

from tests.fleet.place import Machines, Vm
from tests.making.machines import Load, Machine
from vmsonar.fleet.holdings import Holdings, read_holding, write_holding
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.machines import State, interval_of, last_minutes, state_of
from vmsonar.fleet.store import Fleet


class Clock:
    """The collector's time."""

    def __init__(self) -> None:
        self.time = datetime.fromisoformat("2026-11-16T14:00:00Z")

    def __call__(self) -> datetime:
        return self.time

    def later(self, **span: float) -> datetime:
        self.time += timedelta(**span)
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ship(vm: Vm, intake: Intake, clock: Clock, times: int = 4) -> None:
    for _ in range(times):
        clock.later(minutes=15)
        vm.record(20, seconds=45)
        assert intake.take(vm.increment(), "test").accepted


def state(fleet: Fleet, vm: Vm, now: datetime, **more: object) -> State:
    holding = read_holding(fleet, vm.archive)
    assert holding is not None
    return state_of(fleet, holding, now, **more).state  # type: ignore[arg-type]


def test_within_three_shipping_intervals(fleet: Fleet, vm: Vm, clock: Clock) -> None:
    ship(vm, Intake(fleet, now=clock), clock)
    assert state(fleet, vm, clock.later(minutes=15)) is State.ALIVE
    assert state(fleet, vm, clock.later(minutes=15)) is State.LATE
    assert state(fleet, vm, clock.later(minutes=14)) is State.LATE
    assert state(fleet, vm, clock.later(minutes=2)) is State.LOST
    assert state(fleet, vm, clock.time, shipping=timedelta(hours=1)) is State.ALIVE


def test_our_own_silence_is_not_the_machines(fleet: Fleet, vm: Vm, clock: Clock) -> None:
    ship(vm, Intake(fleet, now=clock), clock)
    began = clock.later(days=2)
    assert state(fleet, vm, clock.later(minutes=20), listening=began) is State.ALIVE
    assert state(fleet, vm, clock.later(minutes=26), listening=began) is State.LOST


def test_whoever_said_farewell_is_gone_not_lost(fleet: Fleet, tmp_path: Path, clock: Clock) -> None:
    machine = Machine(events=[(600, EventRow(event_type="daemon_stop", reason="poweroff"))])
    root = machine.record(tmp_path / "vm", 600)
    bundled(root, Intake(fleet, now=clock))
    (archive,) = fleet.ids()
    holding = read_holding(fleet, archive)
    assert holding is not None
    found = state_of(fleet, holding, clock.later(days=1))
    assert (found.state, found.ended) == (State.GONE, "orderly_poweroff")


def test_the_last_minutes_tell_the_likely_cause(fleet: Fleet, tmp_path: Path, clock: Clock) -> None:
    full = Machine(loads=[Load(100, "train", memory=lambda s: 20e6 * s + 1e9)], kills=(1500.0, 1550.0))
    bundled(full.record(tmp_path / "vm", 1600), Intake(fleet, now=clock))
    (archive,) = fleet.ids()
    holding = read_holding(fleet, archive)
    assert holding is not None
    assert last_minutes(fleet, archive, holding.last).cause.startswith("out of memory: the kernel killed 2")


def test_how_often_a_machine_ships_is_its_median(fleet: Fleet, vm: Vm, clock: Clock) -> None:
    intake = Intake(fleet, now=clock)
    ship(vm, intake, clock, 2)
    clock.later(hours=7)
    ship(vm, intake, clock, 3)
    holding = read_holding(fleet, vm.archive)
    assert holding is not None
    assert interval_of(holding, None) == timedelta(minutes=15)
    holding.reached = []
    write_holding(fleet, holding)
    assert interval_of(holding, None) == timedelta(minutes=15)


def test_a_backlog_says_nothing_of_how_often_a_machine_ships(fleet: Fleet, vm: Vm, clock: Clock) -> None:
    shipped = []
    for _ in range(4):
        vm.record(20, seconds=45)
        shipped.append(vm.increment())
    intake = Intake(fleet, now=clock)
    for path in shipped:
        clock.later(seconds=0.1)
        assert intake.take(path, "test", keep=True).accepted
    assert state(fleet, vm, clock.later(minutes=15)) is State.ALIVE
    assert state(fleet, vm, clock.later(minutes=35)) is State.LOST
    # The same sent once more is no sign of life.
    assert intake.take(shipped[-1], "test").accepted
    assert state(fleet, vm, clock.later(minutes=1)) is State.LOST


def bundled(root: Path, intake: Intake) -> None:
    path = root.with_suffix(".tar")
    bundle_to_file(root, path)
    receipt = intake.take(path, "test")
    assert receipt.accepted, receipt


def test_a_clock_that_was_wrong_once_does_not_make_a_machine_lost(fleet: Fleet, vm: Vm, clock: Clock) -> None:
    intake, right = Intake(fleet, now=clock), vm.time
    ship(vm, intake, clock)
    vm.time = right + timedelta(days=3650)
    ship(vm, intake, clock, 1)
    vm.time = right + timedelta(hours=2)
    ship(vm, intake, clock, 20)
    assert state(fleet, vm, clock.later(minutes=15)) is State.ALIVE
    assert state(fleet, vm, clock.later(minutes=35)) is State.LOST


def test_several_machines(fleet: Fleet, machines: Machines, clock: Clock) -> None:
    intake = Intake(fleet, now=clock)
    quiet, talking = machines(), machines()
    ship(quiet, intake, clock)
    clock.later(hours=1)
    ship(talking, intake, clock)
    found = {one.host: state_of(fleet, one, clock.time).state for one in Holdings(fleet).read()}
    assert found == {"vm0": State.LOST, "vm1": State.ALIVE}
