"""Every figure of every workload is right, within its bounds, or null, by the kernel's own accounts."""

import pytest

from tests.accuracy.mixtures import mixture
from tests.accuracy.modes import ALL, CHOSEN, Mode, missing, possible
from tests.accuracy.stage import Performance, perform
from tests.accuracy.workloads import EVERY, NEIGHBOUR
from tests.parts import requires

pytestmark = [requires("root", "gcc", "stranger"), pytest.mark.slow]

SEEDS = 10
BATCH = 10
NAMES = [*(workload.name for workload in EVERY), *(f"seed-{seed}" for seed in range(SEEDS)), "machine"]


@pytest.fixture(scope="module")
def performance() -> Performance:
    """All workloads and some mixtures at once, so that they compete."""
    return perform([*EVERY, *map(mixture, range(SEEDS))], possible(CHOSEN))


def wrong_of(performance: Performance, mode: Mode, name: str) -> list[str]:
    cells = [cell for cell in performance.cells if (cell.mode, cell.workload) == (mode.name, name)]
    assert cells, "nothing was compared"
    return [str(cell) for cell in cells if not cell.is_right]


@pytest.mark.parametrize("mode", CHOSEN, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", NAMES)
def test_figures(performance: Performance, name: str, mode: Mode) -> None:
    if reason := missing(mode):
        pytest.skip(reason)
    assert name not in performance.failed, performance.failed[name]
    assert wrong_of(performance, mode, name) == []


@pytest.mark.chaos
@pytest.mark.parametrize("batch", range(20))
def test_mixtures(batch: int) -> None:
    """Two hundred of them, in every mode."""
    seeds = range(batch * BATCH, (batch + 1) * BATCH)
    result = perform([NEIGHBOUR, *map(mixture, seeds)], possible(ALL))
    assert result.failed == {}
    assert [str(cell) for cell in result.cells if not cell.is_right] == []
