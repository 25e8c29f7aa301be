"""The prepared answers follow the archives: what is new, what is gone, what cannot be read, what spans midnight."""

import itertools
import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.records import EventRow
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened

from tests.fleet.serve.place import NOW, Site, file_machine, site_of
from tests.making.machines import GIB, Box, Load, Machine, box_id, gpu_id
from vmsonar.fleet.serve.combine import combined
from vmsonar.fleet.serve.prepare import Task, prepare
from vmsonar.fleet.serve.prepared import EVERYTHING
from vmsonar.fleet.store import Fleet


@pytest.fixture
def place(fleet: Fleet, tmp_path: Path) -> Iterator[Site]:
    yield from site_of(fleet, tmp_path / "state")


def over_midnight() -> Machine:
    loads = [
        Load(100, "./solve", begin=0, cores=2.0, memory=2 * GIB),
        Load(200, "./early", begin=0, end=300, cores=1.0),
    ]
    start = NOW.replace(hour=23, minute=50)
    return Machine(loads=loads, start=start, instance_id="i-1")


def test_a_job_over_midnight_is_one_with_honest_figures(place: Site, tmp_path: Path) -> None:
    archive = file_machine(place.fleet, over_midnight(), tmp_path)
    place.catch_up()
    with opened([place.fleet.archive(archive)], InspectionSettings(), quiet=True) as whole:
        known = {job.job: job for job in whole.jobs}
    found = {job["job"]: job for job in place.rows("admin", "jobs")}
    long, short = found["100"], found["200"]
    assert short["cpu_seconds"] == pytest.approx(known["200"].cpu_seconds)
    assert short["cores"]["p95"] == pytest.approx(known["200"].cores.p95)
    exact = known["100"].cpu_seconds or 0
    assert exact - 2 * 10 * 2.0 <= long["cpu_seconds"] <= exact + 1e-6
    assert (long["cpu_is_lower_bound"], long["cores"]["p95"], long["cores"]["median"]) == (True, None, None)
    assert long["cores"]["mean"] == pytest.approx(known["100"].cores.mean, rel=0.05)
    assert long["memory_bytes"]["peak"] == pytest.approx(known["100"].memory_bytes.peak)
    assert long["samples"] == known["100"].samples
    (machine,) = place.rows("admin", "machines")
    assert (machine["first"], machine["cores"]["p95"]) == ("2026-11-16T23:50:00Z", None)
    (story,) = place.rows("admin", f"jobs/{archive}/{long['series_id']}")
    times = [moment["time"] for moment in story["timeline"]]
    assert times == sorted(times)
    assert {time[:10] for time in times} == {"2026-11-16", "2026-11-17"}


def test_nobody_else_on_the_host_reads_the_answers(site: Site) -> None:
    made = list(site.prepared.path.parent.glob("answers.db*"))
    assert {path.stat().st_mode & 0o777 for path in made} == {0o640}


def test_what_was_lost_is_told_in_hours_that_were_there(place: Site, tmp_path: Path) -> None:
    """Verdicts are ranked by prices, and each problem by at least so much: no sum of that is core hours."""
    loads = [
        Load(100, "./solve", begin=0, cores=0.2, memory=2 * GIB, gpu={gpu_id(0): 0.0}),
        Load(200, "./held", begin=0, cores=0.001, memory=4 * GIB),
        Load(300, "./wait", begin=0, cores=1.8, workers=(1.0,) * 8, memory=GIB, state="R"),
    ]
    gpus = (gpu_id(0), gpu_id(1))
    machine = Machine(cpus=2, memory=16 * GIB, gpus=gpus, pressure={"cpu": 0.9}, runnable=9, loads=loads)
    archive = file_machine(place.fleet, machine, tmp_path)
    place.catch_up()
    (whole,) = place.rows("admin", "fleet")
    advised = place.rows("admin", "advice", archive=archive)
    rules = {verdict["rule"] for advice in advised for verdict in advice["verdicts"]}
    assert {"gpu_reserved_idle", "idle_memory", "more_threads_than_cores"} <= rules
    for shares in (whole["users"], whole["programs"]):
        cores, gib, gpu = (
            sum(share[f"lost_{unit}_hours"] or 0.0 for share in shares) for unit in ("core", "gib", "gpu")
        )
        assert cores <= whole["core_hours"] + whole["idle_core_hours"]
        # One of the two GPUs and four GiB, for a quarter of an hour.
        assert (gib, gpu) == (pytest.approx(1.0, rel=0.05), pytest.approx(0.25, rel=0.05))


def test_one_day_is_what_inspect_says(place: Site, tmp_path: Path) -> None:
    """The rows of a machine of one day, to the last field."""
    import msgspec

    codes = [
        (100.0 + at, EventRow(event_type="exit", subject="process", pgid=100, pid=200 + at, exit_code=1))
        for at in range(30)
    ]
    machine = Machine(loads=[Load(100, "./solve", begin=0, cores=2.0, memory=2 * GIB)], events=codes)
    archive = file_machine(place.fleet, machine, tmp_path)
    place.catch_up()
    with opened([place.fleet.archive(archive)], InspectionSettings(), quiet=True) as whole:
        assert place.rows("admin", "jobs") == msgspec.to_builtins(whole.jobs)
        assert place.rows("admin", "gaps") == msgspec.to_builtins([gap for _, gap in whole.gaps])
        assert place.rows("admin", "events") == msgspec.to_builtins([event for _, event in whole.events])
        (job,) = whole.jobs
        (key,) = whole.find_jobs(job.series_id)
        told = msgspec.to_builtins(whole.story(key, 96))
    (story,) = place.rows("admin", f"jobs/{archive}/{job.series_id}")
    assert [event["kind"] for event in told["events"]] == ["exit"] * 10
    for name in ("job", "ended_by", "advice", "processes", "programs", "container", "gpus", "events"):
        assert story[name] == told[name], name


def test_what_is_new_is_told_and_what_is_gone_is_not(place: Site, tmp_path: Path) -> None:
    archive = file_machine(place.fleet, over_midnight(), tmp_path)
    place.catch_up()
    before = place.rows("admin", "jobs")
    assert not place.preparer.catch_up()
    shutil.rmtree(place.fleet.archive(archive) / "2026" / "11" / "17")
    place.catch_up()
    after = {job["job"]: job for job in place.rows("admin", "jobs")}
    assert after["100"]["samples"] < before[0]["samples"]
    assert after["100"]["last"] < f"{NOW + timedelta(days=1):%Y-%m-%d}"
    shutil.rmtree(place.fleet.archive(archive))
    place.catch_up()
    assert place.rows("admin", "jobs") == []
    assert place.prepared.units() == {}


def test_damage_is_told_of_its_own_machine_by_a_path_inside_it(place: Site, tmp_path: Path) -> None:
    made = [
        file_machine(place.fleet, Machine(hostname=f"vm-{name}", machine_id=f"{number:032x}"), tmp_path)
        for number, name in enumerate(("her", "his"), 1)
    ]
    (segment,) = place.fleet.archive(made[1]).rglob("sample-*")
    segment.write_bytes(segment.read_bytes()[:-200])
    place.catch_up()
    (gap,) = [gap for gap in place.rows("admin", "gaps") if gap["kind"] == "damage"]
    assert gap["archive"] == made[1]
    assert gap["detail"].startswith("2026/")
    assert [row["damaged"] for row in place.ask("admin", "/api/v1/machines").json()["archives"]] == [
        archive == made[1] for archive in sorted(made)
    ]
    assert "damage" not in place.ask("hers", "/api/v1/gaps").text.replace('"damaged":false', "")


def test_every_list_knows_the_time_of_its_rows(site: Site) -> None:
    for who, views in (
        ("admin", ("gpus", "advice", "events", "gaps", "jobs", "containers")),
        ("anna", ("gpus", "advice")),
    ):
        for view in views:
            everything = site.rows(who, view)
            assert everything, view
            assert site.rows(who, view, **{"from": "2026-11-16T00:00:00Z"}) == everything, view
            assert site.rows(who, view, **{"from": "2026-11-17T00:00:00Z"}) == [], view


def test_whoever_has_only_a_container_there_sees_the_machine(
    place: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(box_id(7), "box", user="anna")
    server = Load(100, "postgres", user="root", container=box.container_id)
    archive = file_machine(place.fleet, Machine(hostname="vm-box", boxes=[box], loads=[server]), tmp_path)
    # As where processes are not recorded.
    monkeypatch.setattr(Inspection, "jobs", [])
    prepare(
        Task(NOW.date(), True, {archive: str(place.fleet.archive(archive))}, {archive: ""}), place.prepared
    )
    answer = place.ask("anna", "/api/v1/containers").json()
    assert [row["name"] for row in answer["rows"]] == ["box"]
    assert [each["archive"] for each in answer["archives"]] == [archive]
    assert [row["hostname"] for row in place.rows("anna", "machines")] == ["vm-box"]
    assert place.rows("bert", "machines") == []


def test_an_answer_sees_one_state_of_things(place: Site, tmp_path: Path) -> None:
    archive = file_machine(place.fleet, Machine(loads=[Load(100, "./solve", begin=0, cores=1.0)]), tmp_path)
    place.catch_up()
    with place.prepared.seen_by(EVERYTHING) as seen:
        before = seen.rows("SELECT number, kind FROM visible")
        place.prepared.forget(archive)
        assert seen.rows("SELECT number, kind FROM visible") == before


def test_a_file_that_comes_after_its_line_in_the_journal_is_seen(place: Site, tmp_path: Path) -> None:
    archive = place.fleet.archive(file_machine(place.fleet, over_midnight(), tmp_path))
    (late,) = (archive / "2026/11/17").glob("sample-*")
    aside = late.rename(tmp_path / late.name)
    place.catch_up()
    before = place.rows("admin", "jobs")
    aside.rename(late)
    place.catch_up()
    assert place.rows("admin", "jobs") != before
    # What has not changed for a while is not looked at again.
    for path in (archive / "journal.jsonl", *archive.glob("2026/*")):
        os.utime(path, (0, 0))
    assert not place.preparer.catch_up()
    late.unlink()
    assert not place.preparer.catch_up()


def test_nobody_is_left_behind_where_more_comes_in_than_can_be_prepared(
    place: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines of which one ships all the time, and a third that is new."""
    monkeypatch.setattr("vmsonar.fleet.serve.preparer._TOGETHER", 1)
    done: list[str] = []
    clock = itertools.count(1)

    def note(task: Task) -> None:
        done.extend(task.archives)
        for archive, stamp in task.stamps.items():
            place.prepared.replace(archive, str(task.day), [], (stamp, float(next(clock)), None), combined)

    monkeypatch.setattr(place.preparer, "_work", note)
    made = [
        file_machine(place.fleet, Machine(hostname=f"vm{at}", machine_id=f"{at:032x}"), tmp_path)
        for at in range(2)
    ]

    def ships(archive: str) -> None:
        (segment,) = place.fleet.archive(archive).rglob("sample-*")
        segment.touch()

    place.catch_up()
    assert sorted(done) == sorted(made)
    done.clear()
    new = file_machine(place.fleet, Machine(hostname="new", machine_id=f"{5:032x}"), tmp_path)
    for _ in range(5):
        for archive in made:
            ships(archive)
        assert place.preparer.catch_up()
    assert done[0] == new or done[1] == new
    assert all(done.count(archive) == 2 for archive in made)


def test_one_that_cannot_be_read_harms_no_other(place: Site, tmp_path: Path) -> None:
    good = file_machine(place.fleet, Machine(loads=[Load(100, "./solve", begin=0, cores=1.0)]), tmp_path)
    bad = file_machine(place.fleet, Machine(hostname="bad", machine_id=f"{5:032x}"), tmp_path)
    (place.fleet.archive(bad) / "archive.json").write_text("{")
    place.catch_up()
    units = place.prepared.units()
    assert units[good, "2026-11-16"][2] is None
    assert units[bad, "2026-11-16"][2]
    with place.prepared.seen_by(EVERYTHING) as seen:
        assert {row[0] for row in seen.rows("SELECT DISTINCT archive FROM visible")} == {good}
    assert "vmsonar_serve_days_failed 1" in place.ask("admin", "/metrics").text
