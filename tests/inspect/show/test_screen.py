"""What a person sees first fits one screen, whatever happened and however small the screen is."""

from collections.abc import Iterator
from datetime import UTC
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from vmsonar_archive.records import EventRow, GapRow
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened
from vmsonar_inspect.show.terminal.views import render_view

from tests.inspect.show.comparing import compare
from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id, gpu_id
from tests.making.scenes import idle_machine


def eventful() -> Machine:
    """Nine jobs, four containers, a GPU, kills, throttling, gaps: more than any screen holds."""
    boxes = [
        Box(box_id(number), f"worker-{number}", limit=2 * GIB, quota=1.0, throttled=0.3, oom_at=900 + number)
        for number in range(4)
    ]
    loads = [
        Load(100 + number, f"python3 step{number}.py", user=f"user{number}", begin=0, cores=0.2 + number / 10,
             memory=(1 + number) * 300 * MIB, end=900 + number if number < 4 else 1e9,
             container=boxes[number].container_id if number < 4 else None)
        for number in range(8)
    ]  # fmt: skip
    # Groups beyond a PID namespace, together the busiest of all.
    loads.append(Load(0, "unknown", begin=0, cores=3.0, memory=1 * GIB, user="root"))
    gaps = [(300.0 + 10 * number, GapRow(collector=f"c{number}", reason="timeout")) for number in range(5)]
    events: list[tuple[float, EventRow]] = [(500.0, EventRow(event_type="clock_step", amount=10**9))]
    return Machine(
        loads=loads, boxes=boxes, gpus=(gpu_id(0),), gaps=gaps, events=events, silent=((600, 700),)
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspection]:
    root = eventful().record(tmp_path_factory.mktemp("eventful") / "archive", 1800)
    with opened([root], InspectionSettings(), deep=False) as inspection:
        for machine in inspection.machines.values():
            machine.source = "vm.tar"
        yield inspection


def screen(
    found: Inspection, width: int, height: int | None, view: str = "summary", top: int | None = None
) -> str:
    out = StringIO()
    terminal = None if height is None else True
    console = Console(
        file=out, width=width, height=height, force_terminal=terminal, color_system=None, highlight=False
    )
    console.print(render_view(found, view, UTC, None, top))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("height", [24, 30, 40, 60])
def test_it_fits(found: Inspection, width: int, height: int) -> None:
    lines = screen(found, width, height).splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width


SIZES = [(80, 24), (120, 40), (200, 50)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_looks_as_expected(found: Inspection, width: int, height: int) -> None:
    compare(f"screen-{width}x{height}", screen(found, width, height))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_first_eight_lines_are_the_answer(found: Inspection, width: int, height: int) -> None:
    text = " ".join(" ".join(screen(found, width, height).splitlines()[:8]).split())
    assert "Busy: 84 % of 8 cores on average, 92 % at the peak" in text
    assert "CPU time: root 45 %, user7 13 %, user6 12 %." in text
    assert "Size: 8 cores, 16 GiB, 0 GPUs would have done." in text
    assert "Went wrong: 08:15 worker-3: a process in it was killed for lack of memory" in text


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_line_stays_empty_while_there_is_more_to_tell(found: Inspection, width: int, height: int) -> None:
    text = screen(found, width, height)
    unused = height - 1 - len(text.splitlines())
    # A list needs three lines to begin with.
    assert unused < 3 or " of " not in "".join(line for line in text.splitlines() if "; all:" in line)


def test_an_idle_machine_says_so_and_that_nothing_went_wrong(tmp_path: Path) -> None:
    with opened([idle_machine().record(tmp_path / "archive", 900)], InspectionSettings()) as idle:
        text = screen(idle, 80, 24)
    assert "Mostly idle: " in text
    assert "Went wrong: nothing failed." in text
    assert "disk read" not in text, "what was not used has no line"


def test_a_pipe_is_a_screen_of_forty_lines(found: Inspection) -> None:
    assert 30 < len(screen(found, 200, None).splitlines()) <= 40


def test_a_larger_screen_shows_more(found: Inspection) -> None:
    shown = [len(screen(found, 80, height).splitlines()) for height in (24, 40, 60)]
    assert shown == sorted(shown)
    assert shown[0] < shown[2]


def test_what_does_not_fit_is_named_with_the_command_that_shows_it(found: Inspection) -> None:
    text = screen(found, 80, 24)
    assert "of 8; all: vmsonar inspect vm.tar jobs)" in text
    assert "More: vmsonar inspect vm.tar [containers | " in text


def test_so_many_rows_as_are_asked_for(found: Inspection) -> None:
    text = screen(found, 80, 24, top=8)
    assert sum(1 for line in text.splitlines() if line.startswith("10")) == 8


def test_groups_beyond_a_namespace_are_no_job(found: Inspection) -> None:
    assert "unknown" not in screen(found, 200, 60)
    text = screen(found, 200, 60, "jobs")
    assert text.splitlines()[4].startswith("no group  root")
    assert "no group: of groups beyond this PID namespace" in text
    assert "job 0" not in screen(found, 200, 60, "advice")
