"""Figures that are not exact are marked in every view, told in words, and sized on the safe side."""

import json
import re
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import JobInfoRow, JobRow
from vmsonar_inspect.advice.figures import job_marks
from vmsonar_inspect.advice.rules import load_rules
from vmsonar_inspect.advice.verdicts import job_advice
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import Energy, JobUse, NodeUse, Use
from vmsonar_inspect.inspection import InspectionSettings, opened
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.doubts import doubts_of
from vmsonar_inspect.show.terminal.lists import size_sentence

from tests.inspect.show.pages import data_of
from tests.making import lives
from tests.making.archives import append_samples, encoded, open_writer
from tests.making.lives import make_lives
from vmsonar.cli import run

MIB = 2**20
GIB = 2**30


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lives(tmp_path_factory.mktemp("doubts") / "archive")


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("low", "high", "at_least", "guess", "mark"),
    [
        (None, None, False, False, ""),
        (None, None, True, False, "≥"),
        (None, 20.0, True, False, "≥"),
        (5.0, 20.0, True, False, "~"),
        (5.0, None, True, False, "~"),
        (5.0, None, False, False, "≤"),
        (9.99, 10.01, True, False, ""),  # nobody would see the difference
        (None, None, False, True, "~"),
    ],
)
def test_marks(low: float | None, high: float | None, at_least: bool, guess: bool, mark: str) -> None:
    assert units.mark(units.hours, 10.0, low, high, at_least, guess) == mark


def test_marks_in_the_list_of_jobs(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    text = ask(capsys, archive, "jobs")
    cells = {line.split()[0]: re.split(r"\s{2,}", line) for line in text.splitlines()[4:-2]}
    assert {"≤25 s", "18 s", "~50 MiB", "~60 MiB"} <= set(cells[str(lives.TWICE)])
    assert {"11 s", "100 MiB", "~128 MiB"} <= set(cells[str(lives.ONCE)])
    assert {"20 s", "~4.0 s", "~0.20", "≥60 B / ~500 B"} <= set(cells[str(lives.YOUNG)])
    assert {"≥2.0 s", "≥0.20", "≥2.0 MiB"} <= set(cells[str(lives.FLAGGED)])
    assert {"0.5 s", "2.0", "3.0 GiB"} <= set(cells[str(lives.BETWEEN)])
    assert cells["not"][:2] == ["not told apart (anna)", "anna"]
    legend = text.splitlines()[-1]
    for words in ("≥ at least", "≤ at most", "~ estimated", "not told apart: time of a user"):
        assert words in legend
    users = ask(capsys, archive, "users").splitlines()[-3].split()
    assert users[:2] == ["anna", str(len(lives.LIVES))]
    assert users[2].startswith("~")


def test_doubt_about_the_time_before_the_record_is_no_doubt_about_it(tmp_path: Path) -> None:
    """The bounds are rounded to ticks as the total is, so they do not stay equally far apart."""
    bounds = [(299, 299, 535), (406, 406, 642), (506, 505, 741), (605, 604, 840), (605, 604, 840)]
    writer = open_writer(tmp_path / "archive")

    def rows(number: int, fresh: bool) -> dict[str, list[bytes]]:
        ticks, low, high = bounds[number]
        job = JobRow(pgid=9, start_ticks=1, processes=1, user_ticks=ticks, system_ticks=0, unattributed=True,
                     cpu_ticks_low=low, cpu_ticks_high=high)  # fmt: skip
        return encoded({"job": [job], "job_info": [JobInfoRow(series_id="s", pgid=9, start_ticks=1)]})

    append_samples(writer, len(bounds), rows)
    writer.close()
    with opened([tmp_path / "archive"], InspectionSettings()) as inspection:
        (job,) = inspection.jobs
    told = (job.cpu_seconds, job.cpu_seconds_low, job.cpu_seconds_high, job.cpu_is_lower_bound)
    assert told == (pytest.approx(3.06), None, None, False)


def test_the_story_says_it_in_words(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    young = " ".join(ask(capsys, archive, "--job", lives.YOUNG).split())
    assert "CPU time: between 3.0 s and 8.0 s (of members that ended only samples are known)" in young
    assert "bytes written: between 400 B and 1000 B" in young
    assert "bytes read: at least 60 B" in young
    once = " ".join(ask(capsys, archive, "--job", lives.ONCE).split())
    assert "memory peak: between 100 MiB and 192 MiB" in once
    assert "its control group held up to 300 MiB, page cache included" in once
    assert "14:00:12 to 2026-11-16 14:00:23 (11 s)" in once
    twice = " ".join(ask(capsys, archive, "--job", lives.TWICE).split())
    assert "runtime: between 15 s and 25 s" in twice
    assert "memory: an estimate" in twice
    assert "CPU time: at least 2.0 s" in " ".join(ask(capsys, archive, "--job", lives.FLAGGED).split())


def test_the_page_has_the_marks_and_explains_them(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(capsys, archive, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    drawn = json.dumps(data_of(tmp_path / "page.html"), ensure_ascii=False)
    for words in ("≤25 s", "~128 MiB", "≥2.0 s", "≥ at least; ≤ at most; ~ estimated"):
        assert words in page + drawn


def test_json_has_bounds_sources_and_utc(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    answer = json.loads(
        ask(capsys, archive, "jobs", "--json", "--tz", "Europe/Berlin", "--from", "2026-11-16T14:00")
    )
    assert answer["since"] == "2026-11-16T13:00:00Z"
    jobs: dict[int, dict[str, Any]] = {job["pgid"]: job for job in answer["rows"]}
    once = jobs[lives.ONCE]
    assert once["end"] == "2026-11-16T14:00:23.500000Z"
    assert (once["memory_source"], once["memory_peak_source"]) == ("sum", "high_water")
    young = jobs[lives.YOUNG]
    assert (young["cpu_seconds_low"], young["cpu_seconds_high"], young["write_bytes_high"]) == (
        3.0,
        8.0,
        1000.0,
    )
    times = re.findall(r'"\d{4}-\d\d-\d\dT[^"]*"', json.dumps(answer))
    assert times
    assert all(time.endswith('Z"') for time in times)
    users = json.loads(ask(capsys, archive, "users", "--json"))["rows"]
    assert (users[0]["memory_source"], users[0]["cpu_seconds_high"]) == ("estimate", None)
    assert users[0]["cpu_seconds_low"] == pytest.approx(users[0]["cpu_seconds"] - 3.5)


def test_a_time_with_a_zone_is_utc_too(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    query = "SELECT MIN(time)::TIMESTAMPTZ AS zoned, MIN(time) AS bare, MAP {'a': 1} AS pairs FROM samples"
    assert run(["sql", str(archive), query, "--json"]) == 0
    moment = "2026-11-16T14:00:10.000000Z"
    assert json.loads(capsys.readouterr().out) == [{"zoned": moment, "bare": moment, "pairs": {"a": 1}}]


FIGURES = {"samples": 100, "seconds": 1e3, "coverage": 1.0, "cores_p95": 0.9, "cores_mean": 0.9, "cpus": 8}


def sized(**doubt: Any) -> Any:
    job = JobUse(
        job="7",
        series_id="s",
        cores=Use(mean=0.9, median=0.9, p95=0.9, peak=0.9),
        memory_bytes=Use(mean=GIB, median=GIB, p95=GIB, peak=doubt.pop("peak", 1.5 * GIB)),
        cpu_seconds=100.0,
        **doubt,
    )
    use = NodeUse(cpus=8, memory_total_bytes=16 * GIB)
    return job, job_advice(load_rules(), job, FIGURES, use)


def test_a_size_of_exact_figures_says_nothing_more() -> None:
    _, advice = sized()
    assert (advice.size_peak.cores, advice.size_peak.memory_gib) == (1, 2)
    assert (advice.size_doubt, advice.size_is_lower_bound) == (None, False)


def test_a_size_holds_the_upper_bounds() -> None:
    _, advice = sized(memory_peak_low_bytes=GIB, memory_peak_high_bytes=6.0 * GIB, memory_peak_source="high_water",
                      cpu_seconds_low=90.0, cpu_seconds_high=300.0, cpu_is_lower_bound=True)  # fmt: skip
    assert (advice.size_peak.cores, advice.size_peak.memory_gib) == (4, 8)
    assert advice.size_p95.cores == 4
    text = size_sentence(advice).plain
    assert "Its memory peak lies between 1.0 GiB and 6.0 GiB: the size holds the most." in text
    assert "Its CPU time lies between 1.5 min and 5.0 min: the cores are those of the most." in text
    assert not advice.size_is_lower_bound


def test_a_bound_beyond_the_machine_is_the_machine() -> None:
    """High-water marks of many members together can be more than there ever was."""
    _, advice = sized(memory_peak_high_bytes=500.0 * GIB, memory_peak_source="high_water")
    assert advice.size_peak.memory_gib == 16
    assert "between 1.5 GiB and 16 GiB" in (advice.size_doubt or "")


def test_a_size_of_lower_bounds_says_at_least() -> None:
    _, advice = sized(memory_peak_source="sampled", cpu_is_lower_bound=True)
    assert advice.size_is_lower_bound
    assert "memory peak is known only as at least 1.5 GiB" in (advice.size_doubt or "")
    assert "CPU time is known only as at least 1.7 min" in (advice.size_doubt or "")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (None, None, units.UNKNOWN),
        (None, 9 * GIB, "≥0 B / \N{EN DASH}"),
        (GIB, None, "≥1.0 GiB / \N{EN DASH}"),
    ],
)
def test_at_least_nothing_is_no_figure(low: float | None, high: float | None, words: str) -> None:
    job, _ = sized(read_bytes=low or 0.0, read_bytes_high=high, write_bytes=0.0, io_is_lower_bound=True)
    (column,) = (each for each in columns_of("jobs", UTC) if each.names == "read_bytes / write_bytes")
    assert column.write(job) == words


def test_verdicts_show_the_marks() -> None:
    job, advice = sized(cpu_is_lower_bound=True)
    assert shown_field(JobUse, "cores.p95").marked(job) == "≥0.90"
    assert job_marks(job)["cores_p95"] == "≥"
    assert "memory_peak" not in job_marks(job)
    (serial,) = (verdict for verdict in advice.verdicts if verdict.rule == "serial")
    assert serial.says.startswith("used ≥0.90 of 8 cores")
    assert serial.marks == {"cores_mean": "≥", "cores_p95": "≥"}


@pytest.mark.parametrize(
    ("write", "value", "like", "words"),
    [
        (units.size, 900 * MIB, 1.2 * GIB, "0.9 GiB"),
        (units.size, 900 * MIB, None, "900 MiB"),
        (units.size, 100, 3 * GIB, "<0.001 GiB"),
        (units.hours, 90, 7200, "0.025 h"),
        (units.duration, 50, 300, "1 min"),
    ],
)
def test_two_figures_of_one_sentence_have_one_unit(
    write: Any, value: float, like: float | None, words: str
) -> None:
    assert write(value, like=like) == words


def test_bounds_have_one_unit() -> None:
    job = JobUse(
        job="7", series_id="s", memory_bytes=Use(peak=900 * MIB), memory_peak_high_bytes=1.2 * GIB,
        memory_peak_source="high_water", cpu_seconds=50.0, cpu_seconds_high=90.0, cpu_is_lower_bound=True,
    )  # fmt: skip
    said = " ".join(doubts_of(job))
    assert "between 0.8 min and 1.5 min" in said
    assert "between 0.9 GiB and 1.2 GiB" in said


def test_a_column_of_energies_has_one_unit() -> None:
    jobs = [
        JobUse(job=str(joules), series_id="s", energy=Energy(joules=joules, source="estimate"))
        for joules in (1_686.0, 3_960.0, 5_000_000.0)
    ]
    (column,) = (each for each in columns_of("jobs", UTC) if each.names == "energy")
    assert column.cells(jobs[:2]) == ["~0.5 Wh", "~1.1 Wh"]
    assert column.cells(jobs) == ["<0.001 kWh", "~0.0011 kWh", "~1.4 kWh"]
