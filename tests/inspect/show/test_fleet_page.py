"""The page of many machines in a real browser: worst used first, charts with their data, advice, and nothing leaves."""

from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_inspect.facts.model import Use
from vmsonar_inspect.show.answers import FleetRow
from vmsonar_inspect.show.page import fleet

from tests.inspect.show.pages import HOSTILE_HOST, OVERFLOW, TALL, click, data_of, points, rows, show
from tests.making.machines import START
from tests.making.scenes import SECONDS, healthy, idle_gpu, idle_machine, serial, throttled
from tests.parts import requires
from tests.real.browser import Browser
from vmsonar.cli import run

pytestmark = requires("chromium")

#: As the page must list them: the least used first.
ORDER = ["vm-idle", "vm-serial", "vm-throttled", "vm-gpu", HOSTILE_HOST]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    machines = {
        HOSTILE_HOST: healthy(),
        "vm-serial": serial(),
        "vm-idle": idle_machine(),
        "vm-gpu": idle_gpu(),
        "vm-throttled": throttled(),
    }
    for number, (name, machine) in enumerate(machines.items()):
        machine.hostname, machine.machine_id = name, f"{number:032x}"
        machine.start = START + timedelta(seconds=300 * number)
        machine.record(folder / "archives" / str(number), SECONDS)
    page = folder / "page.html"
    assert run(["inspect", str(folder / "archives"), "--html", str(page)]) == 0
    return page


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_it_is_silent_offline_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    show(browser, page, width=width, height=TALL, dark=dark)
    assert browser.evaluate("document.documentElement.dataset.ready") == "true"
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.console_errors() == []
    assert browser.requests() == [page.as_uri()]
    assert not browser.is_wider_than_view()
    assert browser.evaluate(OVERFLOW) == []


def test_every_chart_has_its_data(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    found = points(browser)
    assert set(found) == {"machine-cores", "machine-memory", "machine-gpus"}
    assert min(found.values()) >= 150
    data = data_of(page)
    chart = data["charts"]["machine-cores"]
    # Each for half an hour, five minutes after the one before.
    cores = {one["name"]: one["mean"] for one in chart["series"]}
    assert (data["step"], len(cores["vm-serial"])) == (10, 300)
    assert (cores["vm-serial"][29], cores["vm-serial"][100], cores["vm-serial"][250]) == (None, 1, None)
    assert chart["capacity"] == 5 * 8


def test_a_machine_has_one_colour_everywhere(page: Path) -> None:
    data = data_of(page)
    seen: dict[str, set[int]] = {}
    for chart in data["charts"].values():
        for series in chart["series"]:
            seen.setdefault(series["name"], set()).add(series["colour"])
    assert {len(colours) for colours in seen.values()} == {1}
    assert len(set.union(*seen.values())) == len(seen)


def test_every_machine_has_its_section(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440)
    click(browser, ".machine h3 a")
    assert browser.evaluate("document.querySelector('#one h2').textContent") == "Machine vm-idle"
    assert set(points(browser)) >= {"one-cores", "one-memory"}
    assert "vmsonar inspect" in browser.evaluate("document.querySelector('#one .notes').textContent")
    assert browser.evaluate("document.getElementById('all').hidden")
    click(browser, "#one a[data-back]")
    assert not browser.evaluate("document.getElementById('all').hidden")
    assert browser.console_errors() == []


def test_verdicts_are_words(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440)
    verdicts = dict(rows(browser, "machines", 2))
    assert "throttled" in verdicts["vm-throttled"].lower()
    assert "most cores idle" in verdicts["vm-serial"].lower()


def test_the_worst_used_come_first(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    names = "[...document.querySelectorAll('{}')].map(each => each.textContent)"
    assert browser.evaluate(names.format(".machine h3")) == ORDER
    assert rows(browser, "machines") == ORDER
    uses = browser.evaluate(
        "[...document.querySelectorAll('.machine')].map(each => +each.querySelector('progress').value)"
    )
    assert uses == sorted(uses)
    assert uses[1] == pytest.approx(0.118, abs=0.01)


def test_the_overview_adds_up(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    tiles = browser.evaluate("[...document.querySelectorAll('.tile')].map(each => each.textContent)")
    assert tiles[0] == "Machines5recordedwith problems2jobs6"
    assert tiles[1].startswith("Cores")
    assert tiles[1].endswith("of40")


def test_the_advice_names_the_machines(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    said = browser.evaluate("[...document.querySelectorAll('.verdict')].map(each => each.textContent)")
    assert said[0].startswith("Throttled: 1 of 5 machinesvm-throttled")
    assert any(text.startswith("Most cores idle: 1 of 5 machinesvm-serial") for text in said)
    assert "container api: was stopped in 60 % of its periods" in said[0]


def test_it_zooms(browser: Browser, page: Path) -> None:
    show(browser, page, width=1440, height=TALL)
    whole = points(browser)["machine-cores"]
    click(browser, "#zoom-in")
    assert points(browser)["machine-cores"] < whole


def test_one_damaged_machine_is_named(browser: Browser, tmp_path: Path) -> None:
    for name in "abc":
        machine = healthy()
        machine.hostname, machine.machine_id = name, f"{ord(name):032x}"
        machine.record(tmp_path / "archives" / name, 60)
    (tmp_path / "archives" / "b" / "archive.json").write_text("{}")
    page = tmp_path / "page.html"
    assert run(["inspect", str(tmp_path / "archives"), "--html", str(page)]) == 1
    show(browser, page)
    assert browser.console_errors() == []
    assert browser.evaluate("document.querySelector('h1').textContent") == "2 machines"
    assert "archives/b" in browser.evaluate("document.querySelector('#damage').textContent")


def test_a_gpu_of_which_nothing_is_known_is_not_called_idle() -> None:
    row = FleetRow(
        hostname="vm", archive="0" * 8, source="vm.tar", instance_type=None, first=None, last=None, span_seconds=1.0,
        coverage=None, cpus=None, cores=Use(), memory_total_bytes=None, memory_bytes=Use(), gpus=1, gpu_util=Use(),
        used_share=None, jobs=0, problems=0, verdicts=[], size_p95=None,
    )  # fmt: skip
    page = fleet.tiles([row]) + fleet.bars([row], {}, {row.archive: "vm"})
    assert "0 %" not in page
    assert "<progress" not in page
