"""The page in a real browser: complete, silent, offline, and inside its boxes at every width."""

from pathlib import Path

import pytest

from tests.inspect.conftest import known_machine
from tests.inspect.show.pages import (
    HOSTILE,
    HOSTILE_HOST,
    OVERFLOW,
    TALL,
    click,
    data_of,
    fragment,
    points,
    rows,
    settle,
    show,
    write,
)
from tests.making.machines import GIB, MIB, START, Load, Machine
from tests.making.scenes import healthy, out_of_memory
from tests.parts import requires
from tests.real.browser import Browser

pytestmark = requires("chromium")

CHARTS = ("cpu", "memory", "pressure", "disk", "network", "job-cores", "job-memory", "container-cores",
          "container-memory", "gpu-busy", "gpu-memory", "gpu-power")  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(known_machine(), tmp_path_factory.mktemp("page"), 3600)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_it_is_silent_offline_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    show(browser, page, width=width, height=TALL, dark=dark)
    assert browser.evaluate("document.documentElement.dataset.ready") == "true"
    assert browser.console_errors() == []
    assert browser.requests() == [page.as_uri()]
    assert not browser.is_wider_than_view()
    assert browser.evaluate(OVERFLOW) == []


def test_every_chart_has_its_data(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    found = points(browser)
    assert set(found) == set(CHARTS)
    assert min(found.values()) >= 300


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_every_chart_has_three_times_or_more(browser: Browser, page: Path, width: int) -> None:
    show(browser, page, width=width, height=TALL)
    assert min(points(browser, "labels").values()) >= 3
    show(browser, page, "#from=2026-11-16T08:00:00Z&to=2026-11-16T08:01:00Z", width=width, height=TALL)
    assert min(points(browser, "labels").values()) >= 3


def test_a_chart_paints(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    painted = browser.evaluate("""[...document.querySelectorAll('canvas')].map(canvas => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let at = 0; at < pixels.length; at += 4) seen.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]);
        return seen.size;
    })""")
    assert min(painted) > 3


def test_it_zooms_and_comes_back(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    whole = points(browser)
    said = "document.getElementById('range').textContent"
    assert browser.evaluate(said) == "Full recording: 2026-11-16 08:00:00 to 09:00:00 UTC"
    click(browser, "#zoom-in")
    assert points(browser)["cpu"] < whole["cpu"]
    assert browser.evaluate(said) == "2026-11-16 08:15:00 to 08:45:00 UTC"
    click(browser, "#zoom-all")
    assert points(browser) == whole


def test_dragging_zooms_and_a_link_shows_the_same(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=900)
    box = browser.evaluate("""(() => {
        const canvas = document.querySelector('[data-chart=cpu] canvas');
        canvas.scrollIntoView({block: 'center'});
        const {left, top, width} = canvas.getBoundingClientRect();
        return [left, top, width];
    })()""")
    left, top, width = box
    browser.drag((left + width * 0.3, top + 80), (left + width * 0.5, top + 80))
    settle(browser)
    kept = fragment(browser)
    assert kept.startswith("#from=2026-11-16T08%3A1")
    state = """[document.getElementById('range').textContent, location.hash,
        [...document.querySelectorAll('.listed')].map(each => each.id + each.dataset.shown),
        document.querySelector('[data-chart=cpu] canvas').toDataURL()]"""
    browser.evaluate("document.querySelector('[data-chart=cpu]').scrollIntoView({block: 'center'})")
    settle(browser)
    before = browser.evaluate(state)
    show(browser, page, kept, width=1440, height=900)
    browser.evaluate("document.querySelector('[data-chart=cpu]').scrollIntoView({block: 'center'})")
    settle(browser)
    assert browser.evaluate(state) == before
    assert browser.console_errors() == []


def test_the_time_shown_filters_the_tables(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440)
    assert rows(browser, "jobs") == ["100", "200", "300"]
    # Job 200 ended at 08:30.
    show(browser, page, "#from=2026-11-16T08:40:00Z&to=2026-11-16T08:50:00Z", width=1440)
    assert rows(browser, "jobs") == ["100", "300"]
    said = browser.evaluate("document.querySelector('#jobs .count').textContent")
    assert said == "2 of 3 in the time shown; their figures are of the full recording"
    assert rows(browser, "programs") == ["Python", "Shell"]


def test_a_peak_survives_narrow_windows(browser: Browser, tmp_path: Path) -> None:
    """One sample of five days is high, and a step holds two: every chart shows it, at every width."""

    def high(second: float) -> bool:
        return 43200 <= second < 43260

    burst = Load(100, "./burst", begin=0, cores=lambda s: 7.0 if high(s) else 0.1,
                 memory=lambda s: (20 if high(s) else 1) * GIB)  # fmt: skip
    machine = Machine(loads=[burst], interval=60, received=lambda s: 9 * MIB if high(s) else 0)
    page = write(machine, tmp_path, 5 * 86400)
    assert data_of(page)["step"] == 120
    highest = """Object.fromEntries([...document.querySelectorAll('figure')].map(({chart}) => {
        const {drawn, peak} = chart.columns();
        const all = [...drawn.map(each => each.high), peak ?? []].flatMap(each => [...each]);
        return [chart.figure.dataset.chart, Math.max(...all.filter(value => value === value))];
    }))"""
    for width in (390, 1400):
        show(browser, page, width=width, height=TALL)
        assert min(points(browser, "labels").values()) >= 3
        found = browser.evaluate(highest)
        assert found["cpu"] == pytest.approx(7, abs=0.3)
        assert found["job-cores"] == pytest.approx(7, abs=0.3)
        assert found["memory"] > 20 * GIB
        assert found["job-memory"] == pytest.approx(20 * GIB, rel=1e-3)
        assert found["network"] == pytest.approx(9 * MIB, rel=1e-3)


def test_events_are_marks_on_every_chart(browser: Browser, tmp_path: Path) -> None:
    page = write(out_of_memory(), tmp_path, 1800)
    show(browser, page, width=1440, height=TALL)
    marks = points(browser, "marks")
    told = len(data_of(page)["tables"]["events"]["spans"])
    assert told >= 2
    assert set(marks.values()) == {told}
    assert any(data_of(page)["tables"]["events"]["wrong"])


def test_the_tooltip_has_swatches_and_the_zone(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    left, top = browser.evaluate("""(() => {
        const {left, top, width} = document.querySelector('[data-chart=job-cores] canvas').getBoundingClientRect();
        return [left + width / 4, top + 60];
    })()""")
    browser.point(left, top)
    settle(browser)
    tip = browser.evaluate(
        "[...document.querySelectorAll('[data-chart=job-cores] .tip div')].map(e => e.textContent)"
    )
    assert tip[0].startswith("2026-11-16 08:1")
    assert tip[0].endswith(" UTC")
    assert tip[1].startswith("200 simulate")
    assert tip[-1] == "Capacity8.0"
    assert browser.evaluate("document.querySelectorAll('[data-chart=job-cores] .tip .swatch').length") == 2


def test_a_series_can_be_hidden(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    before = points(browser)["job-cores"]
    click(browser, "[data-chart=job-cores] .legend button")
    assert points(browser)["job-cores"] < before


def test_figures_are_those_of_the_tables(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440)
    cells = rows(browser, "jobs", 8)
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
    data = data_of(page)
    chart = data["charts"]["job-cores"]
    cores = chart["series"][1]["mean"]
    assert (data["step"], len(cores)) == (10, 360)
    assert (cores[59], cores[60], cores[119], cores[120], cores[180]) == (0, 4, 4, 1, 0)
    assert cores[245] is None
    assert data["tables"]["gaps"]["columns"][0]["cells"][0] == "no samples"
    assert data["tables"]["gaps"]["spans"][0] == [START.timestamp() + 2400, START.timestamp() + 2700]
    holes = browser.evaluate("document.querySelector('figure').chart.stage.holes")
    assert holes == [[START.timestamp() + 2400, START.timestamp() + 2700]]


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    machine = healthy()
    machine.hostname = HOSTILE_HOST
    machine.loads[0] = Load(100, HOSTILE, user=HOSTILE, begin=0, cores=1.0)
    page = write(machine, tmp_path, 1800)
    show(browser, page, width=1440)
    assert browser.console_errors() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    shown = HOSTILE.replace("\x1b", "\\x1b")
    assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE_HOST
    assert rows(browser, "jobs", 4)[0][3] == shown
    click(browser, "#jobs a")
    assert shown in browser.evaluate("document.querySelector('#one').textContent")
    assert browser.evaluate("document.querySelectorAll('img, script').length") == 2
    assert browser.console_errors() == []


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
    show(browser, write(known_machine(), tmp_path, 600, "--tz", "Europe/Berlin"))
    assert "09:00 to 09:10 CET" in browser.evaluate("document.body.textContent")
    said = browser.evaluate("document.getElementById('range').textContent")
    assert said == "Full recording: 2026-11-16 09:00:00 to 09:10:00 CET"


def test_a_filter_is_told_on_top(browser: Browser, page: Path, tmp_path: Path) -> None:
    show(browser, page)
    assert browser.evaluate("document.querySelector('.filter')") is None
    limits = ("--user", "bert", "--from", "2026-11-16T08:05")
    show(browser, write(known_machine(), tmp_path, 1200, *limits))
    said = browser.evaluate("document.querySelector('.filter').textContent")
    assert said.startswith(
        "Made with a filter: only jobs of user bert, only the time from 2026-11-16 08:05:00 UTC on."
    )
    assert rows(browser, "jobs") == ["200", "300"]


def test_what_went_wrong_comes_before_the_charts(browser: Browser, tmp_path: Path) -> None:
    show(browser, write(out_of_memory(), tmp_path, 1800), width=1440)
    order = browser.evaluate("[...document.querySelectorAll('section')].map(each => each.id)")
    assert order[:4] == ["advice", "wrong", "charts", "use"]
