"""Rendered tables, compared as text at fixed widths; VMSONAR_EXPECT=write writes what is expected anew."""

from collections.abc import Iterator
from datetime import UTC
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened
from vmsonar_inspect.show.order import VIEWS
from vmsonar_inspect.show.terminal.views import render_view

from tests.inspect.show.comparing import compare
from tests.making.scenes import SECONDS, healthy, idle_machine, serial


def rendered(paths: list[Path], view: str, width: int) -> str:
    with opened(paths, InspectionSettings()) as inspection:
        return drawn(inspection, view, width)


def drawn(inspection: Inspection, view: str, width: int) -> str:
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(render_view(inspection, view, UTC))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


@pytest.fixture(scope="module")
def one(known: Path) -> Iterator[Inspection]:
    with opened([known], InspectionSettings()) as inspection:
        yield inspection


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_looks_as_expected(view: str, width: int, one: Inspection) -> None:
    text = drawn(one, view, width)
    assert max(map(len, text.splitlines())) <= width
    compare(f"{view}-{width}", text)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for number, machine in enumerate((healthy(), serial(), idle_machine())):
        machine.hostname = f"vm-{number}"
        machine.machine_id = f"{number:032x}"
        machine.record(folder / machine.hostname, SECONDS)
    return folder


@pytest.mark.parametrize("width", [80, 200])
def test_many_machines_are_a_row_each_worst_used_first(width: int, fleet: Path) -> None:
    text = rendered([fleet], "summary", width)
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["vm-2", "vm-1", "vm-0"]
    compare(f"fleet-{width}", text)


def test_jobs_of_many_machines_say_whose(fleet: Path) -> None:
    lines = rendered([fleet], "jobs", 120).splitlines()
    assert lines[0].split()[:2] == ["machine", "job"]
    assert {line.split()[0] for line in lines[1:]} == {"vm-0", "vm-1", "vm-2"}
