"""Every figure of every workload is right, within its bounds, or null, by the kernel's own accounts."""

import pytest

from tests.accuracy.mixtures import mixture
from tests.accuracy.modes import ALL, CHOSEN, Mode
from tests.accuracy.stage import Performance, perform
from tests.accuracy.workloads import EVERY, NEIGHBOUR
from tests.parts import requires

pytestmark = [requires("root", "gcc", "stranger"), pytest.mark.slow]

SEEDS = 10
BATCH = 10
#: The share of figures that must be right, between their bounds, or null; docs/accuracy.md says which are not.
FLOORS = {"cpu": 0.97, "user_cpu": 0.92, "runtime": 0.97, "read_bytes": 0.95, "write_bytes": 0.95}


@pytest.fixture(scope="module")
def performance() -> Performance:
    """All workloads and some mixtures at once, so that they compete."""
    return perform([*EVERY, *map(mixture, range(SEEDS))], CHOSEN)


@pytest.mark.parametrize("mode", CHOSEN, ids=lambda mode: mode.name)
@pytest.mark.parametrize("figure", FLOORS)
def test_figures(performance: Performance, figure: str, mode: Mode) -> None:
    cells = [cell for cell in performance.cells if (cell.mode, cell.figure) == (mode.name, figure)]
    wrong = [str(cell) for cell in cells if not cell.is_right]
    assert len(cells) > 20
    assert 1 - len(wrong) / len(cells) >= FLOORS[figure], wrong


@pytest.mark.parametrize("mode", CHOSEN, ids=lambda mode: mode.name)
def test_nothing_is_on_a_job_that_does_nothing(performance: Performance, mode: Mode) -> None:
    cells = [cell for cell in performance.cells if cell.mode == mode.name and cell.note == "does nothing"]
    assert cells
    assert [str(cell) for cell in cells if not cell.is_right] == []


@pytest.mark.chaos
@pytest.mark.parametrize("batch", range(20))
def test_mixtures(batch: int) -> None:
    """Two hundred of them, in every mode."""
    seeds = range(batch * BATCH, (batch + 1) * BATCH)
    result = perform([NEIGHBOUR, *map(mixture, seeds)], ALL)
    assert result.failed == {}
    assert [str(cell) for cell in result.cells if not cell.is_right] == []
