"""The page in a real browser: complete, silent, offline, and inside its boxes at every width."""

from pathlib import Path

import pytest

from tests.inspect.conftest import known_machine
from tests.inspect.show.comparing import HOSTILE, HOSTILE_HOST, OVERFLOW, points
from tests.making.machines import START, Load, Machine
from tests.making.scenes import healthy, out_of_memory
from tests.parts import requires
from tests.real.browser import Browser
from vmsonar.cli import run

pytestmark = requires("chromium")

CHARTS = ("cpu", "memory", "pressure", "disk", "network", "job-cores", "job-memory", "container-cores",
          "container-memory", "gpu-busy", "gpu-memory", "gpu-power")  # fmt: skip


def write(machine: Machine, folder: Path, seconds: float, *arguments: str) -> Path:
    root = machine.record(folder / "archive", seconds)
    page = folder / "page.html"
    assert run(["inspect", str(root), "--html", str(page), *arguments]) == 0
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(known_machine(), tmp_path_factory.mktemp("page"), 3600)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_is_silent_offline_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, height=900, dark=dark)
    assert browser.evaluate("document.documentElement.dataset.ready") == "true"
    assert browser.console_errors() == []
    assert browser.requests() == [page.as_uri()]
    assert not browser.is_wider_than_view()
    assert browser.evaluate(OVERFLOW) == []


def test_every_chart_has_its_data(browser: Browser, page: Path) -> None:
    browser.open(page, width=1440)
    found = points(browser)
    assert set(found) == set(CHARTS)
    assert min(found.values()) >= 300


def test_a_chart_paints(browser: Browser, page: Path) -> None:
    browser.open(page, width=1440)
    painted = browser.evaluate("""[...document.querySelectorAll('canvas')].map(canvas => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let at = 0; at < pixels.length; at += 4) seen.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]);
        return seen.size;
    })""")
    assert min(painted) > 3


def test_it_zooms_and_comes_back(browser: Browser, page: Path) -> None:
    browser.open(page, width=1440)
    whole = points(browser)
    browser.evaluate("document.getElementById('zoom-in').click()")
    assert points(browser)["cpu"] < whole["cpu"]
    assert browser.evaluate("document.getElementById('range').textContent").startswith("16/11/2026, 08:15:00")
    browser.evaluate("document.getElementById('zoom-all').click()")
    assert points(browser) == whole


def test_dragging_zooms(browser: Browser, page: Path) -> None:
    browser.open(page, width=1440)
    browser.evaluate("""(() => {
        const canvas = document.querySelector('canvas');
        canvas.setPointerCapture = () => 0;
        const box = canvas.getBoundingClientRect();
        const at = (type, share) => canvas.dispatchEvent(new PointerEvent(type, {
            clientX: box.left + share * box.width, clientY: box.top + 50, button: 0, pointerId: 1, bubbles: true}));
        at('pointerdown', 0.25); at('pointermove', 0.5); at('pointerup', 0.5);
    })()""")
    assert browser.evaluate("document.getElementById('range').textContent") != "all of it"
    assert browser.console_errors() == []


def test_a_series_can_be_hidden(browser: Browser, page: Path) -> None:
    browser.open(page, width=1440)
    before = points(browser)["job-cores"]
    browser.evaluate("document.querySelector('[data-chart=job-cores] .legend button').click()")
    assert points(browser)["job-cores"] < before


def test_figures_are_those_of_the_tables(browser: Browser, page: Path) -> None:
    browser.open(page, width=1440)
    cells = browser.evaluate(
        "[...document.querySelectorAll('#jobs tbody tr')].map(r => [...r.cells].slice(0, 8).map(c => c.textContent))"
    )
    assert cells[0] == [
        *("100", "anna", "Python in train.py", "python3 train.py", "11-16 08:00", "60 min", "60 min", "2.0 h")
    ]
    assert cells[1] == [
        "200",
        "bert",
        "simulate",
        "./simulate --steps 10",
        "11-16 08:10",
        "20 min",
        "20 min",
        "50 min",
    ]
    data = browser.evaluate("JSON.parse(document.getElementById('data').textContent)")
    cores = data["charts"]["job-cores"]["series"][1]["values"]
    assert (data["step"], data["count"]) == (10, 360)
    assert (cores[59], cores[60], cores[119], cores[120], cores[180]) == (0, 4, 4, 1, 0)
    assert cores[245] is None
    assert data["holes"] == [[START.timestamp() + 2400, START.timestamp() + 2700]]


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    machine = healthy()
    machine.hostname = HOSTILE_HOST
    machine.loads[0] = Load(100, HOSTILE, user=HOSTILE, begin=0, cores=1.0)
    page = write(machine, tmp_path, 1800)
    browser.open(page, width=1440)
    assert browser.console_errors() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    shown = HOSTILE.replace("\x1b", "\\x1b")
    assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE_HOST
    assert browser.evaluate("document.querySelector('#jobs td:nth-child(4)').textContent") == shown
    assert browser.evaluate("document.documentElement.dataset.ready") == "true"


def test_the_policy_stops_foreign_script_and_style(browser: Browser, page: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text().replace("</main>", "<script>window.owned = 1</script></main>"))
    browser.open(changed)
    assert browser.evaluate("window.owned === undefined")
    assert any("Content Security Policy" in message for message in browser.console_errors())


def test_a_page_without_samples_is_a_sentence(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(Machine(loads=[]), tmp_path, -1))
    assert browser.console_errors() == []
    assert "The archive holds no samples." in browser.evaluate("document.body.textContent")


def test_times_are_in_the_zone_that_was_asked_for(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(known_machine(), tmp_path, 600, "--tz", "Europe/Berlin"))
    assert browser.evaluate("JSON.parse(document.getElementById('data').textContent).zone") == "Europe/Berlin"
    assert "09:00 to 09:10 CET" in browser.evaluate("document.body.textContent")


def test_a_long_list_shows_its_first_rows_and_keeps_the_others_at_hand(
    browser: Browser, tmp_path: Path
) -> None:
    loads = [Load(100 + number, f"./step{number}", begin=0, cores=0.1) for number in range(40)]
    browser.open(write(Machine(loads=loads), tmp_path, 300), width=1440)
    shown = "[...document.querySelectorAll('#jobs tbody tr')].filter(each => each.checkVisibility()).length"
    assert browser.evaluate(shown) == 25
    browser.evaluate("document.querySelector('#jobs details').open = true")
    assert browser.evaluate(shown) == 40
    assert browser.evaluate(OVERFLOW) == []


def test_what_went_wrong_comes_before_the_charts(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(out_of_memory(), tmp_path, 1800), width=1440)
    order = browser.evaluate("[...document.querySelectorAll('section')].map(each => each.id)")
    assert order[:3] == ["advice", "wrong", "charts"]
