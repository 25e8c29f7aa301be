"""A fleet that is empty, and machines to fill it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.place import Machines, Vm
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import Fleet, open_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return open_fleet(tmp_path / "fleet", create=True)


@pytest.fixture
def intake(fleet: Fleet) -> Intake:
    return Intake(fleet)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def vm(machines: Machines) -> Vm:
    return machines()
