"""`vmsonar top` on a real terminal: live from a recorder of its own, and back in time through a record."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from vmsonar_archive.write.rewrite import rewrite
from vmsonar_inspect.facts.programs import load_programs
from vmsonar_inspect.show.terminal.reel import Reel
from vmsonar_inspect.show.terminal.top import Instant, TopScreen

from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id, gpu_id
from tests.parts import requires
from tests.real.terminal import Terminal
from vmsonar import cli
from vmsonar.commands.top import _Viewer

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


def instant(reel: Reel, number: int) -> Instant:
    now, before = (reel.sample(reel.seq(each)) for each in (number, number - 1))
    assert now is not None
    assert before is not None
    return Instant(now[1], load_programs(), now[0], before[0])


def test_an_instant_has_the_rates_between_two_samples(recorded: Path) -> None:
    reel = Reel(recorded)
    shown = instant(reel, 200)
    jobs = {row.name: row for row in shown.jobs}
    assert shown.seconds == 10
    assert jobs["200"].cores == pytest.approx(3.0, abs=0.1)
    assert jobs["200"].memory == pytest.approx(8 * GIB, rel=0.01)
    assert jobs["300"].io == pytest.approx(5 * MIB, rel=0.01)
    assert jobs["300"].user == "cleo"
    assert "of 8 cores" in shown.machine()
    found = reel.sample(0)
    assert found is not None
    first = Instant(found[1], load_programs(), found[0], None)
    assert {row.cores for row in first.jobs} == {None}, "one sample has no rates, and none is 0"


def test_the_gpus_of_a_container_are_those_of_its_jobs(tmp_path: Path) -> None:
    card, box = gpu_id(0), Box(box_id(1), "trainer")
    held = {"gpu": {card: 70.0}, "gpu_memory": GIB, "container": box.container_id}
    loads = [Load(100, "python3 fit.py", begin=0, cores=1.0, **held), Load(200, "sshd", begin=0)]
    root = Machine(loads=loads, boxes=[box], gpus=(card,)).record(tmp_path / "archive", 60)
    shown = instant(Reel(root), 3)
    assert {row.name: row.gpu for row in (*shown.jobs, *shown.containers)} == {
        "100": 70.0, "200": None, "trainer": 70.0,
    }  # fmt: skip


def test_a_reel_reaches_back_over_segments(recorded: Path) -> None:
    reel = Reel(recorded)
    before, oldest = len(reel), reel.seq(0)
    added = reel.reach_back()
    assert added > 0
    assert len(reel) == before + added
    assert reel.seq(added) == oldest
    while reel.reach_back():
        pass
    assert reel.reach_back() == 0
    seqs = [reel.seq(number) for number in range(len(reel))]
    assert len(seqs) == 721
    assert seqs == sorted(seqs)
    assert len(reel._infos) <= 4, "names of few segments are kept, and found again"
    assert {row.what for row in instant(reel, 1).jobs} == {
        "Python in train.py",
        "simulate",
        "Shell in backup.sh",
    }


@pytest.fixture
def living(tmp_path: Path) -> Iterator[tuple[Reel, Path]]:
    """A reel on an archive of three hours of which all was looked at."""
    load = Load(100, "python3 train.py", begin=0, cores=2.0)
    root = Machine(loads=[load]).record(tmp_path / "archive", 3 * 3600)
    reel = Reel(root)
    while reel.reach_back():
        pass
    yield reel, root
    reel.close()


def segments(root: Path) -> list[Path]:
    return sorted(root.glob("*/*/*/sample-*"))


def test_what_was_packed_anew_is_found_by_its_number(living: tuple[Reel, Path]) -> None:
    reel, root = living
    seqs = [reel.seq(number) for number in range(len(reel))]
    for segment in segments(root):
        anew = segment.with_suffix(".new")
        with segment.open("rb") as source:
            rewrite([source], anew, "", 19)
        anew.rename(segment)
    for seq in (seqs[0], seqs[70], seqs[400], seqs[-1]):
        found = reel.sample(seq)
        assert found is not None
        assert found[0].seq == seq
    reel.refresh()
    assert [reel.seq(number) for number in range(len(reel))] == seqs


def test_what_was_dropped_is_passed_over(living: tuple[Reel, Path]) -> None:
    reel, root = living
    first, second, *_ = segments(root)
    first.unlink()
    found = reel.sample(0)
    assert found is not None
    assert found[0].seq == int(second.name.split("-")[2].split(".")[0])
    assert reel.seq(0) == found[0].seq
    for segment in segments(root):
        segment.unlink()
    reel.refresh()
    assert len(reel) == 0
    assert reel.sample(400) is None


@pytest.mark.parametrize(
    ("parts", "keys"),
    [
        (["\x1b[A", "\x1bOB"], ["k", "j"]),
        (["\x1b[1;5A"], ["k"]),
        (["\x1b[5~\x1b[6;2~"], ["<", ">"]),
        (["\x1b[21~"], ["q"]),
        (["\x1bOP", "\x1b[15~", "x"], ["", "", "x"]),
        (["\x1b", "[", "5", "~"], ["<"]),
        (["\x1bq"], ["\x1b", "q"]),
        (["j" * 100], ["j"] * 100),
    ],
)
def test_keys_are_told_apart_however_they_come(
    parts: list[str], keys: list[str], monkeypatch: pytest.MonkeyPatch, recorded: Path
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as given, os.fdopen(writing, "wb", buffering=0) as typed:
        monkeypatch.setattr("sys.stdin", given)
        viewer, found = _Viewer(recorded, UTC), []
        for part in parts:
            typed.write(part.encode())
            found += viewer._keys(0)
    assert found == keys


def test_nobody_scrolls_past_the_last_row(recorded: Path) -> None:
    screen = TopScreen(UTC, instant=instant(Reel(recorded), 200), first=10_000)
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True)
    console.print(screen)
    assert screen.first == 0
    assert "simulate" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("width", "order", "titles"), [
    (60, "cores", {"job (2)", "user", "cores", "memory", "what"}),
    (48, "cores", {"job (2)", "cores", "memory", "what"}),
    (60, "io", {"job (2)", "cores", "memory", "I/O", "what"}),
    (100, "cores", {"job (2)", "user", "cores", "memory", "I/O", "what"}),
])  # fmt: skip
def test_a_narrow_screen_says_what_it_is(width: int, order: str, titles: set[str], recorded: Path) -> None:
    shown = instant(Reel(recorded), 200)
    shown.jobs = [replace(row, user="a-long-user", io=1023e6) for row in shown.jobs]
    screen = TopScreen(UTC, order=order, instant=shown)
    console = Console(file=StringIO(), width=width, height=24)
    console.print(screen)
    line = console.file.getvalue().splitlines()[2]  # type: ignore[attr-defined]
    assert set(re.split("  +", line.strip())) == titles


def test_the_keys_take_no_row_that_is_not_there(recorded: Path) -> None:
    for has_help in (False, True):
        screen = TopScreen(UTC, has_help=has_help, instant=instant(Reel(recorded), 200))
        console = Console(file=StringIO(), width=60, height=12)
        console.print(screen)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) <= 12
        assert ("closes this" in " ".join(lines)) is has_help


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
        text = terminal.until("end of the record, by cores", "simulate", "q quit")
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
        terminal.until("end of the record")
        terminal.type("?")
        terminal.until("or F10 leaves")
        terminal.type("h")
        terminal.until("q quit")
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
