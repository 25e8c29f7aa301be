"""Every figure of every workload is right, within its bounds, or null, by the kernel's own accounts."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.accuracy.mixtures import mixture
from tests.accuracy.modes import ALL, CHOSEN, Mode
from tests.accuracy.stage import Performance, perform
from tests.accuracy.workloads import EVERY, NEIGHBOUR
from tests.parts import requires
from tests.real import stranger

pytestmark = [requires("root", "gcc", "stranger"), pytest.mark.slow]

SEEDS = 10
BATCH = 10
#: The share of figures that must be right, between their bounds, or null; docs/accuracy.md says which are not.
FLOORS = {
    "cpu": 0.97,
    "user_cpu": 0.95,
    "runtime": 0.97,
    "read_bytes": 0.97,
    "write_bytes": 0.97,
    "machine_cpu": 1.0,
    "memory_peak": 1.0,
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the recorders' archives are kept."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def performance(archives: Path) -> Performance:
    """All workloads and some mixtures at once, so that they compete."""
    return perform([*EVERY, *map(mixture, range(SEEDS))], CHOSEN, keep=archives)


def test_every_workload_ran(performance: Performance) -> None:
    assert performance.failed == {}


@pytest.mark.parametrize("mode", CHOSEN, ids=lambda mode: mode.name)
@pytest.mark.parametrize("figure", FLOORS)
def test_figures(performance: Performance, figure: str, mode: Mode) -> None:
    cells = [cell for cell in performance.cells if (cell.mode, cell.figure) == (mode.name, figure)]
    wrong = [str(cell) for cell in cells if not cell.is_right]
    assert len(cells) >= {"machine_cpu": 1, "memory_peak": 9}.get(figure, 20)
    assert 1 - len(wrong) / len(cells) >= FLOORS[figure], wrong


@pytest.mark.parametrize("mode", CHOSEN, ids=lambda mode: mode.name)
def test_every_job_has_rows(performance: Performance, mode: Mode) -> None:
    missing = [cell for cell in performance.cells if (cell.mode, cell.figure) == (mode.name, "job")]
    assert [str(cell) for cell in missing] == []


@pytest.mark.parametrize("mode", CHOSEN, ids=lambda mode: mode.name)
def test_a_size_holds_the_peak(performance: Performance, archives: Path, mode: Mode) -> None:
    """Of 3 GiB for half a second between two samples: the size that people are told has room, or says "at least"."""
    pgid = performance.truths["memory-burst"].jobs["burst"].pgid
    archive = archives / "recorders" / mode.name / "archive"
    command = stranger.vmsonar("inspect", str(archive), "--job", str(pgid), "--json")
    done = subprocess.run(
        command, env=stranger.environment(), cwd="/", capture_output=True, text=True, check=True
    )
    (row,) = json.loads(done.stdout)["rows"]
    assert row["advice"]["size_peak"]["memory_gib"] >= 4 or row["advice"]["size_is_lower_bound"]


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
