"""The page for everybody: by keyboard alone, for screen readers (axe-core), in colours one can tell, and on paper."""

import re
from pathlib import Path
from typing import Any

import pytest
import vmsonar_inspect.show.page as room

from tests.inspect.conftest import known_machine
from tests.inspect.show.pages import TALL, click, data_of, fragment, settle, show, write
from tests.making.machines import Load, Machine
from tests.making.scenes import SECONDS, healthy, idle_gpu, out_of_memory, serial
from tests.parts import axe_script, requires
from tests.real.browser import Browser
from vmsonar.cli import run

pytestmark = requires("chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(known_machine(), tmp_path_factory.mktemp("page"), 3600)


@pytest.fixture(scope="module")
def wrong_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(out_of_memory(), tmp_path_factory.mktemp("wrong"), 1800, "--min-runtime", "1s")


@pytest.fixture(scope="module")
def fleet_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for number, machine in enumerate((healthy(), serial(), idle_gpu())):
        machine.hostname, machine.machine_id = f"vm-{number}", f"{number:032x}"
        machine.record(folder / "archives" / str(number), SECONDS)
    assert run(["inspect", str(folder / "archives"), "--html", str(folder / "page.html")]) == 0
    return folder / "page.html"


def serious(browser: Browser) -> list[Any]:
    """What axe-core finds that keeps people out."""
    browser.evaluate(axe_script().read_text())
    found = browser.evaluate("""axe.run({resultTypes: ['violations']}).then(found => found.violations.map(each =>
        [each.id, each.impact, each.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))""")
    return [each for each in found if each[1] in ("serious", "critical")]


@requires("axe")
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(
    browser: Browser, page: Path, wrong_page: Path, fleet_page: Path, dark: bool
) -> None:
    job = "#job=" + data_of(page)["tables"]["jobs"]["ids"][0]
    machine = "#machine=" + data_of(fleet_page)["tables"]["machines"]["ids"][1]
    for each, place in ((page, ""), (page, job), (wrong_page, ""), (fleet_page, ""), (fleet_page, machine)):
        show(browser, each, place, width=1400, height=TALL, dark=dark)
        browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert serious(browser) == [], (each, place)


def test_it_works_by_keyboard_alone(browser: Browser, page: Path) -> None:
    """From the top: to a job by Tab and Enter, back, and through a chart by arrows."""
    show(browser, page, width=1400)
    reached = []
    for _ in range(80):
        browser.press("Tab")
        name = browser.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        )
        reached.append(name)
        if browser.evaluate("document.activeElement.matches('#jobs tbody a')"):
            break
    assert {"Advice", "zoom in", "Full recording", "CPU: busy cores over time", "Jobs, table", "job"} <= set(
        reached
    )
    browser.press("Enter")
    settle(browser)
    assert browser.evaluate("document.querySelector('#one h2').textContent") == "Job 100"
    browser.evaluate("document.querySelector('#one a[data-back]').focus()")
    browser.press("Enter")
    settle(browser)
    assert browser.evaluate("document.getElementById('one').hidden")


def test_a_chart_is_read_out_and_zooms_by_keys(browser: Browser, page: Path) -> None:
    show(browser, page, width=1400, height=TALL)
    browser.evaluate("document.querySelector('[data-chart=cpu] canvas').focus()")
    for _ in range(40):
        browser.press("ArrowRight")
    said = browser.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    assert said.startswith("2026-11-16 08:2")
    assert "UTC: busy cores 3." in said
    assert "Capacity 8.0" in said
    browser.press("+")
    settle(browser)
    assert fragment(browser).startswith("#from=2026-11-16T08%3A")
    browser.press("0")
    settle(browser)
    assert "from=" not in fragment(browser)


def test_the_focus_stays_while_a_long_table_scrolls(browser: Browser, tmp_path: Path) -> None:
    loads = [Load(100 + number, f"./step{number}", begin=0, cores=0.01) for number in range(150)]
    show(browser, write(Machine(loads=loads), tmp_path, 100), width=1400)
    browser.evaluate("document.querySelector('#jobs tbody:not([aria-hidden]) a').focus()")
    seen = set()
    for _ in range(120):
        browser.press("Tab")
        seen.add(browser.evaluate("document.activeElement.closest('#jobs tr')?.ariaRowIndex"))
    assert len(seen - {None}) == 120


@pytest.mark.parametrize("far", [0, 1_000_000])
def test_what_has_the_focus_stays_when_it_is_scrolled_out_of_view(
    browser: Browser, tmp_path: Path, far: int
) -> None:
    loads = [Load(100 + number, f"./step{number}", begin=0, cores=0.01) for number in range(200)]
    show(browser, write(Machine(loads=loads), tmp_path, 100), width=1400)
    box = "document.querySelector('#jobs .scroll')"
    browser.evaluate(f"{box}.scrollTop = {box}.scrollHeight / 2")
    settle(browser)
    browser.evaluate("[...document.querySelectorAll('#jobs tbody:not([aria-hidden]) a')][12].focus()")
    line = "document.activeElement.closest('#jobs tr')?.ariaRowIndex"
    before, height = browser.evaluate(line), browser.evaluate(f"{box}.scrollHeight")
    for _ in range(3):
        browser.evaluate(f"{box}.scrollTop = {far}")
        settle(browser)
    assert browser.evaluate(line) == before
    shown = browser.evaluate(
        "[...document.querySelectorAll('#jobs tbody:not([aria-hidden]) tr')].map(row => +row.ariaRowIndex)"
    )
    assert shown == sorted(shown)
    assert abs(browser.evaluate(f"{box}.scrollHeight") - height) < 3


_COLOUR = re.compile(r"--([\w-]+): #([0-9a-f]{6})")


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_have_the_contrast_of_aa(theme: int) -> None:
    """4.5 for text, also that on canvas, and 3 for lines and areas."""
    style = (Path(room.__file__).parent / "page.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
    colours = dict(_COLOUR.findall((light, dark.split("* {")[0])[theme]))
    for text in ("text", "soft", "accent", "bad", "good"):
        for back in ("card", "back"):
            assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
    for text, back in (
        ("bad", "bad-back"),
        ("warn", "warn-back"),
        ("soft", "warn-back"),
        ("accent", "bad-back"),
    ):
        assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
    for line in ("cap", *(f"c{number}" for number in range(20))):
        assert contrast(colours[line], colours["card"]) >= 3, line


def test_it_prints_all_in_light_colours(browser: Browser, page: Path) -> None:
    show(browser, page, width=1400, dark=True)
    click(browser, "#zoom-in")
    assert browser.print_pdf().startswith(b"%PDF")
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    printed = "getComputedStyle(document.querySelector('figure')).backgroundColor"
    assert browser.evaluate(printed) == "rgb(255, 255, 255)"
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert browser.console_errors() == []
