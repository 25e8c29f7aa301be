"""Thirteen recorded workloads: every problem is named, nothing is said against the healthy ones, and all views agree.

The recordings are made by `python -m tests.recorded.workloads`.
"""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

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
    "idle_memory": {"idle_memory"},
    "killed_container": {"container_out_of_memory"},
    "full_disk": {"disk_filled"},
    "many_short_jobs": {"many_short_jobs"},
    "crash_loop": {"crash_loop"},
}
#: What is as true of a machine on which somebody starves.
CROWDED = {"starved": {"cores_saturated"}}
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", TRUTH)]


class Views:
    """What each view says of one recording."""

    def __init__(self, name: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.source, self._capsys = HELD / f"{name}.tar", capsys
        self.summary: dict[str, Any] = json.loads(self.ask("--json"))["rows"][0]
        self.advice: list[dict[str, Any]] = json.loads(self.ask("advice", "--json"))["rows"]
        self.screen = _flat(self.ask("--top", "20"))
        self.ask("--html", folder / "page.html")
        text = re.sub(
            r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", (folder / "page.html").read_text()
        )
        self.page = _flat(html.unescape(text))

    def ask(self, *arguments: object) -> str:
        assert run(["inspect", str(self.source), *map(str, arguments)]) == 0
        return self._capsys.readouterr().out

    def story(self, job: str) -> tuple[str, dict[str, Any]]:
        return _flat(self.ask("--job", job)), json.loads(self.ask("--job", job, "--json"))["rows"][0]


def _flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def views(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Views:
    monkeypatch.setenv("COLUMNS", "300")
    return Views(name, capsys, tmp_path)


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
    for shown in (views.screen, views.page):
        assert whole["conclusion"] in shown
        for verdict in views.summary["verdicts"]:
            assert f"{verdict['says']}." in shown
        for rule in {"starved", "memory_far_from_full", "serial"} - TRUTH[name]:
            assert f"[{rule}, " not in shown
    told = {advice["subject"]: advice for advice in views.summary["advice"]}
    for advice in views.advice[1:4]:
        text, story = views.story(advice["subject"])
        assert story["advice"]["conclusion"] == advice["conclusion"] == told[advice["subject"]]["conclusion"]
        assert advice["conclusion"] in text
        rules = [verdict["rule"] for verdict in advice["verdicts"]]
        assert [verdict["rule"] for verdict in story["advice"]["verdicts"]] == rules
        assert all(f"{verdict['says']}." in text for verdict in advice["verdicts"])


def test_no_headline_contradicts_itself(name: str, views: Views) -> None:
    for advice in views.advice:
        said = advice["conclusion"]
        rules = {verdict["rule"] for verdict in advice["verdicts"]}
        assert not ("would have held" in said and "larger machine would have helped:" in said), said
        assert not ("used is not known" in said and "would not have helped" in said), said
        assert not ("nothing waited" in said and rules & {"starved", "cores_saturated", "thrashing"}), said
        assert ("at least" in said) >= (advice["size_is_lower_bound"] and advice["enough_data"]), said
        peak, cpus = advice["cores"]["peak"], advice["cpus"]
        assert peak is None or peak <= cpus
    for job in views.summary["jobs"]:
        most = job["cpu_seconds_high"] or job["cpu_seconds"] or 0.0
        assert most <= 1.02 * cpus * (job["observed_seconds"] or 0.0) + 0.05, job["job"]


def test_no_moment_shows_more_cores_than_there_are(name: str, views: Views) -> None:
    cpus = views.summary["use"]["cpus"]
    moments = json.loads(views.ask("timeline", "--json"))["rows"]
    assert all((moment["cores_peak"] or 0.0) <= cpus for moment in moments)
