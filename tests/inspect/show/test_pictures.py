"""The pictures of the README are drawn from a recorded session; `VMSONAR_EXPECT=write` draws them again."""

import hashlib
import os
import re
from datetime import UTC
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from vmsonar_inspect.inspection import InspectionSettings, opened
from vmsonar_inspect.show.page.build import script, style, write_page
from vmsonar_inspect.show.terminal.views import render_view

from tests.inspect.show.comparing import compare
from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id
from tests.parts import requires
from tests.real.browser import Browser

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
SCREEN = PICTURES / "first-screen.svg"
PAGE = PICTURES / "page.png"
#: A picture is looked at in a browser by everybody who reads the README.
MOST_BYTES = 200_000


def session() -> Machine:
    """Two hours of three people: training in a container, a build, and a job that ran out of memory."""
    box = Box(box_id(7), "trainer", image="pytorch:2.9", limit=4 * GIB, oom_at=5400)
    return Machine(
        loads=[
            Load(2100, "python3 train.py", begin=0, end=5400, cores=lambda s: 2.4 + 0.5 * (s // 600 % 2),
                 memory=lambda s: (1 + s / 1800) * GIB, container=box.container_id),
            Load(3400, "make -j4", user="bert", begin=1800, end=3600, cores=3.6, memory=900 * MIB, write=4 * MIB),
            Load(4100, "bash nightly.sh", user="cleo", begin=600, cores=0.2, memory=60 * MIB, read=2 * MIB),
            Load(900, "/usr/sbin/sshd", user="root", memory=8 * MIB),
        ],
        boxes=[box], received=1 * MIB, sent=200_000, package_watts=60.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session().record(tmp_path_factory.mktemp("pictures") / "archive", 7200)


def drawn(recorded: Path) -> str:
    """The first screen as a drawing that fetches nothing."""
    console = Console(
        record=True, width=100, height=32, file=StringIO(), force_terminal=True, highlight=False
    )
    with opened([recorded], InspectionSettings()) as inspection:
        for machine in inspection.machines.values():
            machine.source = "vm.tar"
        console.print(render_view(inspection, "summary", UTC))
    svg = console.export_svg(title="vmsonar inspect vm.tar", unique_id="screen")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.S)


def words_of(svg: str) -> str:
    return " ".join(unescape(" ".join(re.findall(r">([^<>]+)</text>", svg))).split())


def test_the_first_screen_in_the_readme_is_what_the_command_prints(recorded: Path) -> None:
    svg = drawn(recorded)
    if os.environ.get("VMSONAR_EXPECT") == "write":
        SCREEN.write_text(svg)
    assert words_of(SCREEN.read_text()) == words_of(svg)
    assert "Went wrong:" in words_of(svg)
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", svg), "a picture fetches nothing"
    assert len(svg) < MOST_BYTES


@requires("chromium")
def test_the_page_in_the_readme_shows_what_the_page_says(
    recorded: Path, tmp_path: Path, browser: Browser
) -> None:
    with opened([recorded], InspectionSettings()) as inspection:
        write_page(inspection, tmp_path / "page.html", UTC)
    browser.open(tmp_path / "page.html", 1200, 900)
    text = browser.evaluate("document.querySelector('main').innerText")
    lines = [re.sub(r"\S*/archive\S*|[0-9a-f]{8}-[0-9a-f-]{27}", "…", line) for line in text.splitlines()]
    if os.environ.get("VMSONAR_EXPECT") == "write":
        browser.screenshot(PAGE, whole_page=False)
    # Looks are no words: with another style or script the picture is to be drawn again.
    looks = hashlib.sha256((style() + script()).encode()).hexdigest()
    words = "".join(f"{line.strip()}\n" for line in lines if line.strip())[:2000]
    compare("picture-page", f"{words}\n{looks}\n")
    assert PAGE.stat().st_size < MOST_BYTES
