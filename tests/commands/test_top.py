"""`vmsonar top` on a real terminal: live from a recorder of its own, and back in time through a record."""

import sys
from pathlib import Path

import pytest
from vmsonar_inspect.facts.programs import load_programs
from vmsonar_inspect.show.terminal.reel import Reel
from vmsonar_inspect.show.terminal.top import Instant

from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id
from tests.parts import requires
from tests.real.terminal import Terminal
from vmsonar import cli

VMSONAR = [sys.executable, "-m", "vmsonar"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours: first anna computes, then bert, who also holds the memory."""
    box = Box(box_id(1), "trainer", user="anna")
    loads = [
        Load(
            100, "python3 train.py", begin=0, end=5000, cores=2.0, memory=1 * GIB, container=box.container_id
        ),
        Load(
            200, "./simulate", user="bert", begin=0, cores=lambda s: 0.5 if s < 5000 else 3.0, memory=8 * GIB
        ),
        Load(300, "bash backup.sh", user="cleo", begin=0, cores=0.1, write=5 * MIB),
    ]
    return Machine(loads=loads, boxes=[box]).record(tmp_path_factory.mktemp("top") / "archive", 7200)


def test_an_instant_has_the_rates_between_two_samples(recorded: Path) -> None:
    reel = Reel(recorded)
    instant = Instant(reel, load_programs(), reel.sample(200), reel.sample(199))
    jobs = {row.name: row for row in instant.jobs}
    assert instant.seconds == 10
    assert jobs["200"].cores == pytest.approx(3.0, abs=0.1)
    assert jobs["200"].memory == pytest.approx(8 * GIB, rel=0.01)
    assert jobs["300"].io == pytest.approx(5 * MIB, rel=0.01)
    assert jobs["300"].user == "cleo"
    assert "of 8 cores" in instant.machine()
    first = Instant(reel, load_programs(), reel.sample(0), None)
    assert {row.cores for row in first.jobs} == {None}, "one sample has no rates, and none is 0"


def test_a_reel_reaches_back_over_segments(recorded: Path) -> None:
    reel = Reel(recorded)
    before, oldest = len(reel), reel.sample(0).seq
    added = reel.reach_back()
    assert added > 0
    assert len(reel) == before + added
    assert reel.sample(added).seq == oldest
    assert [reel.sample(number).seq for number in range(1, 5)] == sorted(
        reel.sample(number).seq for number in range(1, 5)
    )
    while reel.reach_back():
        pass
    assert reel.reach_back() == 0
    assert len(reel) == 721


def test_it_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["top"]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def first_row(terminal: Terminal) -> str:
    return terminal.text.splitlines()[3]


@pytest.mark.slow
@requires("tmux")
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_sorting_processes_and_time(recorded: Path, width: int, height: int) -> None:
    with Terminal([*VMSONAR, "top", str(recorded)], width, height) as terminal:
        text = terminal.until("live, by cores", "simulate", "q quit")
        assert len(text.splitlines()) <= height
        assert max(map(len, text.splitlines())) <= width
        assert first_row(terminal).startswith("200")
        assert "trainer" not in text, "the container has ended by now"
        terminal.type("I")
        terminal.until("by io")
        assert first_row(terminal).startswith("300")
        terminal.type("p")
        terminal.until("process (")
        terminal.type("p")
        terminal.type("P")
        terminal.type("Left")
        terminal.until("1 back")
        for back in range(1, 7):
            terminal.type("[")
            terminal.until(f"{60 * back + 1} back")
        text = terminal.until("Python in train.py", "trainer")
        assert first_row(terminal).startswith("100")
        terminal.type("End")
        terminal.until("live")
        terminal.type("q")
        assert terminal.until("[exit 0]") == "[exit 0]", "nothing is left on the screen"
        assert terminal.flag("cursor_flag") == "1"


@pytest.mark.slow
@requires("tmux")
def test_without_a_recorder_it_starts_one_and_takes_it_away_again(tmp_path: Path) -> None:
    line = ["env", f"TMPDIR={tmp_path}", f"VMSONAR_ARCHIVE={tmp_path}/none", *VMSONAR, "top"]
    with Terminal(line, 100, 30) as terminal:
        terminal.until("live, by cores", "over 1.")
        assert list(tmp_path.glob("vmsonar-top-*"))
        terminal.type("q")
        terminal.until("[exit 0]")
    assert not list(tmp_path.glob("*"))
