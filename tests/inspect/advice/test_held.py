"""Fourteen recorded workloads: every problem is named, nothing is said against the healthy ones, and all views agree.

The recordings are made by `python -m tests.recorded.workloads`.
"""

import html
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from vmsonar_archive.parquet import derive
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import JobUse
from vmsonar_inspect.inspection import InspectionSettings, opened, opening
from vmsonar_inspect.show.answers import summary_of
from vmsonar_inspect.show.terminal.views import render_view

from tests.inspect.show.pages import data_of
from vmsonar.cli import run

HELD = Path(__file__).parents[2] / "recorded" / "held"
#: The verdicts that each must have, and no other.
TRUTH: dict[str, set[str]] = {
    "build": set(),
    "single": set(),
    "container": set(),
    "unseen_container": set(),
    "shell": set(),
    "copy": set(),
    "idle": set(),
    "starved": {"starved"},
    "starved_on_two": {"starved"},
    "idle_memory": {"idle_memory"},
    "killed_container": {"container_out_of_memory"},
    "full_disk": {"disk_filled"},
    "many_short_jobs": {"many_short_jobs"},
    "crash_loop": {"crash_loop"},
}
#: What is as true of a machine on which somebody starves.
CROWDED = {"starved": {"cores_saturated"}, "starved_on_two": {"cores_saturated"}}
# By module: what a recording's views say is asked once for all tests.
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", TRUTH, scope="module")]


class Views:
    """What each view says of one recording."""

    def __init__(self, name: str, folder: Path) -> None:
        self.source = HELD / f"{name}.tar"
        self.ask, self.story = cache(self._ask), cache(self._story)
        self.summary: dict[str, Any] = json.loads(self.ask("--json"))["rows"][0]
        self.advice: list[dict[str, Any]] = json.loads(self.ask("advice", "--json"))["rows"]
        self.screen = _flat(self.ask("--top", "20"))
        self.ask("--html", folder / "page.html")
        text = re.sub(
            r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", (folder / "page.html").read_text()
        )
        self.page = _flat(html.unescape(text))
        data = data_of(folder / "page.html")
        self.tables = data["tables"]
        self.sections = {
            each["about"][0]: _flat(html.unescape(re.sub(r"<[^>]+>", " ", each["notes"])))
            for each in data["details"]
        }

    def _ask(self, *arguments: object) -> str:
        with redirect_stdout(io.StringIO()) as said:
            assert run(["inspect", str(self.source), *map(str, arguments)]) == 0
        return said.getvalue()

    def _story(self, job: str) -> tuple[str, dict[str, Any]]:
        return _flat(self.ask("--job", job)), json.loads(self.ask("--job", job, "--json"))["rows"][0]


def _flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def views(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    folder = tmp_path_factory.mktemp(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        yield Views(name, folder)


def test_every_problem_is_named_and_no_other(name: str, views: Views) -> None:
    said = [
        f"{verdict['name']}: {verdict['rule']}; {verdict['says']}" for verdict in views.summary["verdicts"]
    ]
    rules = {verdict["rule"] for verdict in views.summary["verdicts"]}
    assert rules - CROWDED.get(name, set()) == TRUTH[name], said
    if not TRUTH[name]:
        assert not views.summary["wrong"]
        assert not any(advice["verdicts"] for advice in views.advice)


def test_all_views_say_the_same(name: str, views: Views) -> None:
    whole = views.advice[0]
    assert whole["conclusion"] == views.summary["advice"][0]["conclusion"]
    titles = {verdict["title"] for verdict in views.summary["verdicts"]}
    for shown in (views.screen, views.page):
        assert whole["conclusion"] in shown
        for verdict in views.summary["verdicts"]:
            assert f"{verdict['says']}." in shown
        for title in {"starved of CPU by others", "killed for lack of memory", "no room left"} - titles:
            assert title not in shown.lower()
    told = {advice["subject"]: advice for advice in views.summary["advice"]}
    for advice in views.advice[1:4]:
        text, story = views.story(advice["subject"])
        assert story["advice"]["conclusion"] == advice["conclusion"] == told[advice["subject"]]["conclusion"]
        assert advice["conclusion"] in text
        # On the page the job's own section.
        assert advice["conclusion"] in views.sections[advice["subject"]]
        assert all(
            f"{verdict['says']}." in views.sections[advice["subject"]] for verdict in advice["verdicts"]
        )
        rules = [verdict["rule"] for verdict in advice["verdicts"]]
        assert [verdict["rule"] for verdict in story["advice"]["verdicts"]] == rules
        assert all(f"{verdict['says']}." in text for verdict in advice["verdicts"])


def test_the_figures_of_a_job_are_the_same_everywhere(name: str, views: Views) -> None:
    table = views.tables.get("jobs", {"columns": [], "ids": []})
    cells = {column["name"]: column["cells"] for column in table["columns"]}
    for place, series in enumerate(table["ids"][:3]):
        text, story = views.story(series)
        job = msgspec.convert(story["job"], JobUse)
        if not job.is_one_job:
            continue  # time of nobody's is in no list of jobs on the screen
        number = job.job
        names = " ".join(cells[field][place] for field in ("job", "user", "label"))
        assert names == " ".join((job.job, job.user or "", job.label))
        (row,) = re.findall(rf"{re.escape(names)} .{{120}}", views.screen)
        for field in ("cpu_seconds", "memory_bytes.peak", "cores.p95"):
            figure = shown_field(JobUse, field).marked(job)
            assert figure == cells[field][place], (number, field)
            assert f" {figure} " in row, (number, field)
        assert f"CPU time {cells['cpu_seconds'][place]}," in text
        assert f"End: {story['ended_by']}" in text
        assert job.ending.words == story["ended_by"]


def test_what_went_wrong_is_the_same_everywhere(name: str, views: Views) -> None:
    wrong = [event["what"] for event in views.summary["wrong"]]
    told = {
        column["name"]: column["cells"] for column in views.tables.get("wrong", {"columns": []})["columns"]
    }
    assert told.get("what", []) == wrong
    # Of each subject the first: a container that was killed also ended.
    firsts = {event["subject"]: event["what"] for event in reversed(views.summary["wrong"])}
    assert all(
        event["what"] in views.screen
        for event in views.summary["wrong"][:2]
        if firsts[event["subject"]] == event["what"]
    )
    assert ("Went wrong: nothing failed." in views.screen) == (
        not wrong and not {"crash_loop", "disk_filled"} & TRUTH[name]
    )


def test_eight_lines_of_a_small_screen_hold_the_answer(name: str, views: Views) -> None:
    """Busy or not, who, what went wrong, what size, and the verdict that matters most."""
    out, told = io.StringIO(), views.summary
    with opened([views.source], InspectionSettings(), quiet=True) as inspection:
        small = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
        small.print(render_view(inspection, "summary", UTC))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    text = _flat(" ".join(lines[:8]))
    assert re.search(r"(Saturated|Busy|Partly busy|Mostly idle): ", text)
    assert f"Size: {told['advice'][0]['conclusion']}" in text
    wrong = re.findall(r"Went wrong: (.+?\.) ", views.screen)
    assert f"Went wrong: {wrong[0]}" in text
    assert all(verdict["title"] in text for verdict in told["verdicts"][:1])


def test_no_headline_contradicts_itself(name: str, views: Views) -> None:
    for advice in views.advice:
        said = advice["conclusion"]
        rules = {verdict["rule"] for verdict in advice["verdicts"]}
        enough = "would have held" in said or "would have done" in said
        assert not (enough and "larger machine would have helped:" in said), said
        assert not (enough and rules & {"starved", "cores_saturated", "thrashing", "job_out_of_memory"}), said
        calm = "nothing waited" in said or "did not wait" in said
        assert not (calm and rules & {"starved", "cores_saturated", "thrashing"}), said
        assert ("at least" in said) >= (advice["size_is_lower_bound"] and advice["enough_data"]), said
        peak, cpus = advice["cores"]["peak"], advice["cpus"]
        assert peak is None or peak <= cpus
    for job in views.summary["jobs"]:
        most = job["cpu_seconds_high"] or job["cpu_seconds"] or 0.0
        assert most <= 1.02 * cpus * (job["observed_seconds"] or 0.0) + 0.05, job["job"]


def test_nobody_used_more_than_the_machine_did(name: str, views: Views) -> None:
    """Counters of the machine and of jobs are read one after the other, and the machine's not at the same moment."""
    node, cpus = views.summary["use"]["cpu_seconds"], views.summary["use"]["cpus"]
    jobs = sum(job["cpu_seconds"] or 0.0 for job in views.summary["jobs"])
    users = sum(user["cpu_seconds"] or 0.0 for user in json.loads(views.ask("users", "--json"))["rows"])
    assert jobs <= 1.02 * node + 0.1
    assert users <= 1.02 * node + 0.1
    assert users <= cpus * views.summary["coverage"]["covered_seconds"] + 0.1


def test_a_brief_look_says_the_same(
    name: str, views: Views, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMSONAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "_SMALL", 0)
    # Of a minute that would be two samples.
    monkeypatch.setattr(derive, "_WHOLE_SAMPLES", 4)
    monkeypatch.setattr(derive, "_BRIEF_STEP", 3 * 10**9)
    with opened([views.source], InspectionSettings(), deep=None, quiet=True, first=True) as brief:
        (archive,) = brief.sources
        found = summary_of(brief, archive)
    assert {job.series_id: job.label for job in found.jobs} == {
        job["series_id"]: job["label"] for job in views.summary["jobs"]
    }
    whole = [(verdict["name"], verdict["rule"]) for verdict in views.summary["verdicts"]]
    assert [(verdict.name, verdict.rule) for verdict in found.verdicts] == whole
    assert found.advice[0].conclusion == views.summary["advice"][0]["conclusion"]


def test_no_moment_shows_more_cores_than_there_are(name: str, views: Views) -> None:
    cpus = views.summary["use"]["cpus"]
    moments = json.loads(views.ask("timeline", "--json"))["rows"]
    assert all((moment["cores_peak"] or 0.0) <= cpus for moment in moments)
