"""The page's tables in a real browser: sort, search, filter, scroll through thousands, and lead to each job."""

from pathlib import Path

import pytest

from tests.inspect.conftest import known_machine
from tests.inspect.show.pages import (
    OVERFLOW,
    ask,
    click,
    data_of,
    fragment,
    points,
    rows,
    settle,
    show,
    write,
)
from tests.making.machines import Load, Machine
from tests.making.scenes import out_of_memory
from tests.parts import requires
from tests.real.browser import Browser
from vmsonar.cli import run

pytestmark = requires("chromium")

JOBS = 400
HELD = Path(__file__).parents[2] / "recorded" / "held"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hundred jobs of three users; job 100 used least, 499 most."""
    users = ("anna", "bert", "cleo")
    loads = [
        Load(100 + number, f"./step{number}", begin=0, cores=0.01 * (number + 1), user=users[number % 3])
        for number in range(JOBS)
    ]
    return write(Machine(loads=loads, cpus=1000), tmp_path_factory.mktemp("tables"), 300)


@pytest.fixture(scope="module")
def known_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(known_machine(), tmp_path_factory.mktemp("known"), 3600)


def test_a_column_sorts_both_ways_and_back(browser: Browser, page: Path) -> None:
    show(browser, page, width=1400)
    assert rows(browser, "jobs")[0] == "499"
    for first, way in (("499", "descending"), ("100", "ascending"), ("499", "none")):
        click(browser, "#jobs th:nth-child(8) button")
        assert rows(browser, "jobs")[0] == first
        assert browser.evaluate("document.querySelector('#jobs th:nth-child(8)').ariaSort") == way
    click(browser, "#jobs th:nth-child(1) button")
    assert rows(browser, "jobs")[:2] == ["100", "101"]


def test_figures_sort_by_their_value(browser: Browser, known_page: Path) -> None:
    """2.0 h, 50 min and 0 s of CPU time: as text they would be in another order."""
    show(browser, known_page, "#jobs.sort=cpu_seconds", width=1400)
    assert [row[7] for row in rows(browser, "jobs", 8)] == ["0 s", "50 min", "2.0 h"]


def test_search_and_choice_narrow_a_table(browser: Browser, page: Path) -> None:
    show(browser, page, width=1400)
    ask(browser, "#jobs input", "BERT step1")
    found = rows(browser, "jobs", 4)
    assert found
    assert all(row[1] == "bert" and "step1" in row[3] for row in found)
    ask(browser, "#jobs input", "")
    ask(browser, "#jobs select", "cleo", "change")
    assert browser.evaluate("document.querySelector('#jobs .count').textContent") == "133 of 400"


def test_a_link_keeps_sort_search_and_choice(browser: Browser, page: Path) -> None:
    show(browser, page, width=1400)
    ask(browser, "#jobs input", "step12")
    ask(browser, "#jobs select", "anna", "change")
    click(browser, "#jobs th:nth-child(8) button")
    before = rows(browser, "jobs", 7)
    kept = fragment(browser)
    show(browser, page, kept, width=1400)
    assert rows(browser, "jobs", 7) == before
    assert browser.evaluate("document.querySelector('#jobs input').value") == "step12"


def test_all_rows_are_there_while_few_are_in_the_document(browser: Browser, page: Path) -> None:
    show(browser, page, width=1400)
    assert len(rows(browser, "jobs")) < 60
    assert browser.evaluate("document.querySelector('#jobs table').ariaRowCount") == str(JOBS + 1)
    seen: set[str] = set()
    for share in range(41):
        browser.evaluate(
            "(() => { const box = document.querySelector('#jobs .scroll');"
            f" box.scrollTop = box.scrollHeight * {share} / 40; }})()"
        )
        settle(browser)
        seen |= set(rows(browser, "jobs"))
    assert len(seen) == JOBS
    assert rows(browser, "jobs")[-1] == "100"


def test_more_rows_than_a_page_holds_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmsonar_inspect.show.page.tables.MOST_ROWS", 30)
    monkeypatch.setattr("vmsonar_inspect.show.page.build.MOST_ROWS", 30)
    loads = [Load(100 + number, f"./step{number}", begin=0, cores=0.1 * number) for number in range(40)]
    table = data_of(write(Machine(loads=loads), tmp_path, 100))["tables"]["jobs"]
    assert table["rest"] == "and 10 with less CPU time, which are not on this page"
    assert (table["count"], len(table["ids"])) == (40, 30)
    assert table["columns"][0]["cells"][0] == "139"


def test_what_does_not_fit_has_a_cue(browser: Browser, known_page: Path) -> None:
    show(browser, known_page, width=390)
    assert browser.evaluate("document.querySelector('#jobs .frame').classList.contains('more')")
    browser.evaluate("document.querySelector('#jobs .scroll').scrollLeft = 1e6")
    settle(browser)
    assert not browser.evaluate("document.querySelector('#jobs .frame').classList.contains('more')")


def test_every_job_has_its_section(browser: Browser, known_page: Path) -> None:
    show(browser, known_page, width=1400)
    links = browser.evaluate("[...document.querySelectorAll('#jobs tbody a')].map(each => each.hash)")
    assert len(links) == 3
    click(browser, "#jobs tbody a")
    assert browser.evaluate("location.hash") == links[0]
    said = browser.evaluate("document.querySelector('#one').innerText")
    for words in ("Job 100", "python3 train.py", "2.0 h", "Programs", "Container trainer", "GPUs", "Size:"):
        assert words in said, words
    charts = {"one-cores", "one-memory", "one-read", "one-gpu", "meanwhile-cpu", "meanwhile-pressure"}
    assert set(points(browser)) & charts == charts
    assert browser.evaluate("document.activeElement.textContent") == "Job 100"
    assert browser.console_errors() == []


def test_a_machine_without_stalls_has_no_empty_chart_beside_a_job(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(["inspect", str(HELD / "starved.tar"), "--html", str(page)]) == 0
    show(browser, page, width=1400)
    click(browser, "#jobs tbody a")
    assert {name for name in points(browser) if name.startswith("meanwhile")} == {"meanwhile-cpu"}


def test_a_link_to_a_job_that_is_not_there_says_so(browser: Browser, known_page: Path) -> None:
    show(browser, known_page, "#job=nobody", width=1400)
    said = "document.getElementById('missing')"
    assert "No job nobody is on this page" in browser.evaluate(f"{said}.textContent")
    assert browser.evaluate(f"{said}.checkVisibility()")
    click(browser, "#jobs tbody a")
    assert not browser.evaluate(f"{said}.checkVisibility()")


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_a_link_to_a_job_opens_it_and_fits(browser: Browser, known_page: Path, width: int) -> None:
    job = data_of(known_page)["tables"]["jobs"]["ids"][1]
    show(browser, known_page, f"#job={job}&from=2026-11-16T08:15:00Z&to=2026-11-16T08:20:00Z", width=width)
    assert browser.evaluate("document.querySelector('#one h2').textContent") == "Job 200"
    assert browser.evaluate("document.getElementById('range').textContent").startswith(
        "2026-11-16 08:15:00 to"
    )
    assert not browser.is_wider_than_view()
    assert browser.evaluate(OVERFLOW) == []


def test_a_jobs_course_is_that_of_the_records(known_page: Path) -> None:
    data = data_of(known_page)
    course = data["details"][1]["course"]
    assert course["step"] == 10
    assert course["cores"]["mean"][1:4] == [4, 4, 4]
    assert course["cores"]["mean"][100] == 1
    assert max(course["memory"]["mean"]) == pytest.approx(2 * 2**30, rel=0.02)
    assert course["read"]["mean"][10] == pytest.approx(10 * 2**20, rel=0.01)
    assert data["details"][0]["course"]["gpu"]["mean"][5] == 50


def test_rows_of_users_and_containers_lead_to_their_jobs(browser: Browser, known_page: Path) -> None:
    show(browser, known_page, "#from=2026-11-16T08:05:00Z&to=2026-11-16T08:35:00Z", width=1400)
    click(browser, "#users tbody tr:nth-child(2) a")
    assert {row[1] for row in rows(browser, "jobs", 2)} == {"bert"}
    # The time shown stays.
    assert "from=2026-11-16T08" in fragment(browser)
    click(browser, "#containers tbody a")
    assert "jobs.container=trainer" in fragment(browser)


def test_events_lead_to_what_they_are_about(browser: Browser, tmp_path: Path) -> None:
    show(browser, write(out_of_memory(), tmp_path, 1800), width=1400)
    click(browser, "#wrong tbody a")
    assert "jobs.container=trainer" in fragment(browser)
    assert rows(browser, "jobs") == ["100"]
    click(browser, "#jobs tbody a")
    assert "the container reached its memory limit" in browser.evaluate(
        "document.querySelector('#one').innerText"
    )


def test_the_way_back_brings_back_the_page(browser: Browser, known_page: Path) -> None:
    show(browser, known_page, "#from=2026-11-16T08:05:00Z&to=2026-11-16T08:35:00Z", width=1400)
    click(browser, "#jobs tbody a")
    click(browser, "#one a[data-back]")
    assert browser.evaluate("document.getElementById('range').textContent").startswith("2026-11-16 08:05:00")
    browser.evaluate("history.back()")
    browser.evaluate("new Promise(done => setTimeout(done, 300))")
    assert browser.evaluate("document.querySelector('#one h2').textContent") == "Job 100"
