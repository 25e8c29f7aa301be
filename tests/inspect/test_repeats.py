"""`vmsonar compare` of jobs: those of one name as repeats, those of two archives name by name."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import EventRow
from vmsonar_inspect.facts.job_model import JobUse
from vmsonar_inspect.inspection.repeats import _names, named_side

from tests.making.machines import START, Load, Machine
from vmsonar.cli import run

MAKE = "make -j8 all"


def record(
    folder: Path, *jobs: tuple[str, float, int | None], read: float = 0.0, group: Any = None, **machine: Any
) -> Path:
    """An archive of jobs: a command, its seconds of CPU time, and the code with which it ended, if it did."""
    number = len(folder.name) * 1000 + sum(map(ord, folder.name))
    loads = [
        Load(
            number + place,
            command,
            begin=20 * place,
            end=1e9 if code is None else 20 * place + 100,
            cores=cpu / 100,
            read=read,
            group=lambda _: group or {},
        )
        for place, (command, cpu, code) in enumerate(jobs)
    ]
    events = [
        (load.end + 1, _exit(load, code))
        for load, (_, _, code) in zip(loads, jobs, strict=True)
        if code is not None
    ]
    made = Machine(loads=loads, events=events, hostname=folder.name, machine_id=f"{number:032x}", **machine)
    return made.record(folder, 400)


def _exit(load: Load, code: int) -> EventRow:
    return EventRow(
        event_type="exit",
        subject="job",
        happened=START + timedelta(seconds=load.end + 1),
        pgid=load.pgid,
        start_ticks=load.start_ticks,
        exit_code=code,
        exit_source="pidfd",
    )


def compared(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    assert run(["compare", *map(str, words), "--json"]) == code
    out = capsys.readouterr().out
    return json.loads(out) if out else None


def table(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run(["compare", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_jobs_of_one_name_are_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, count in (("a", 3), ("b", 2)):
        record(tmp_path / place, *[(MAKE, 10.0 + number, 0) for number in range(count)])
    for name in ("make", MAKE):
        found = compared(capsys, f"{tmp_path}/a#{name}", f"{tmp_path}/b#{name}")
        assert [len(side["runs"]) for side in found["sides"]] == [3, 2]
    compared(capsys, f"{tmp_path}/a#make", f"{tmp_path}/a#make", code=2)
    compared(capsys, f"{tmp_path}/a#make", f"{tmp_path}/a#make", "--repeat", 2, code=2)
    compared(capsys, f"{tmp_path}/a#make", f"{tmp_path}/b#cmake", code=3)


def test_a_job_is_found_by_whatever_it_is_called() -> None:
    job = JobUse(
        job="77",
        series_id="",
        job_name="fit",
        command="/usr/bin/make -j8",
        label="C compiler (make)",
        program="C compiler",
    )
    assert _names(job) == ["fit", "/usr/bin/make -j8", "C compiler (make)", "make", "C compiler"]
    assert _names(JobUse(job="77", series_id="")) == []


def test_jobs_that_have_not_ended_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a job has used so far is no repeat, and no gate may fail for it."""
    a = record(tmp_path / "a", (MAKE, 10, 0), (MAKE, 11, 0))
    b = record(tmp_path / "b", (MAKE, 10, 0), (MAKE, 900, None))
    gate = ("--gate", "cpu<=+5%")
    found = compared(capsys, f"{a}#make", f"{b}#make", *gate)
    assert [(len(side["runs"]), side["left_out"]) for side in found["sides"]] == [(2, 0), (1, 1)]
    c = record(tmp_path / "c", (MAKE, 900, None))
    compared(capsys, f"{a}#make", f"{c}#make", *gate, code=3)
    compared(capsys, a, c, code=3)


def test_jobs_that_failed_are_no_repeats_of_those_that_did_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = record(tmp_path / "a", (MAKE, 10, 0), (MAKE, 10, 1), (MAKE, 10, 0), cpus=8)
    b = record(tmp_path / "b", (MAKE, 10, 0), (MAKE, 10, 0), (MAKE, 10, 1), cpus=4)
    sides = f"{a}#make", f"{b}#make"
    found = compared(capsys, *sides)
    assert [[each["exit_code"] for each in side["runs"]] for side in found["sides"]] == [[0, 0], [1]]
    assert [side["left_out"] for side in found["sides"]] == [1, 2]
    assert found["scaling"] is None
    text = table(capsys, *sides)
    assert f"{sides[1]}: 1 of 1 run failed (exit 1)" in text
    assert f"{sides[1]}: 2 jobs left out" in text
    good = record(tmp_path / "c", (MAKE, 10, 0), cpus=4)
    assert compared(capsys, sides[0], f"{good}#make")["scaling"] is not None


def test_bounds_of_jobs_are_bounds_of_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate over what samples missed says that it cannot see all of it, and the table marks it."""
    unsure = {"cpu_ticks_low": 500, "cpu_ticks_high": 2000, "io_partial": True}
    a = record(tmp_path / "a", (MAKE, 10, 0), read=1000)
    b = record(tmp_path / "b", (MAKE, 10, 0), read=1000, group=unsure)
    gates = [word for name in ("cpu", "read", "elapsed") for word in ("--gate", f"{name}<=+5%")]
    found = compared(capsys, f"{a}#make", f"{b}#make", *gates)
    assert [gate["is_uncertain"] for gate in found["gates"]] == [True, True, False]
    (job,) = found["sides"][1]["runs"]
    assert (job["cpu_seconds_low"], job["cpu_seconds_high"]) == (5.0, 20.0)
    lines = {line.split()[0]: line for line in table(capsys, f"{a}#make", f"{b}#make").splitlines()}
    assert lines["cpu"].split() == ["cpu", "10", "s", "~10", "s", "~+0.0", "%"]
    assert "≥98 KiB" in lines["read"]


def test_what_the_machine_waited_for_is_told_of_jobs(tmp_path: Path) -> None:
    archive = record(tmp_path / "a", (MAKE, 10, 0), pressure={"cpu": 0.25, "io": 0.1, "memory": 0.0})
    (job,) = named_side("", archive, "make").runs
    assert job.waited_source == "machine"
    assert (job.waited_cpu, job.waited_io, job.waited_memory) == pytest.approx((0.25, 0.1, 0.0), abs=0.01)


def test_two_archives_are_compared_job_by_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what a job is called on every side: the command where that is the same, else the program."""
    a = record(tmp_path / "a", (MAKE, 10, 0), (MAKE, 10, 0), ("sort big", 50, 0), ("./onlyhere", 1, 0))
    b = record(tmp_path / "b", (MAKE, 12, 0), ("sort small", 5, 0), ("sort small", 900, None))
    found = compared(capsys, a, b)
    names = [side["name"] for side in found["sides"]]
    assert names == [f"{a}#sort", f"{b}#sort", f"{a}#{MAKE}", f"{b}#{MAKE}"]  # the most CPU time first
    assert [len(side["runs"]) for side in found["sides"]] == [1, 1, 2, 1]
    assert {(each["against"], each["side"]) for each in found["differences"]} == {
        (f"{a}#sort", f"{b}#sort"),
        (f"{a}#{MAKE}", f"{b}#{MAKE}"),
    }
    cpu = {each["side"]: each["change"] for each in found["differences"] if each["measure"] == "cpu"}
    assert cpu == pytest.approx({f"{b}#sort": -0.9, f"{b}#{MAKE}": 0.2}, abs=0.02)
    (line,) = (line for line in table(capsys, a, b).splitlines() if f"b#{MAKE}" in line)
    assert "2, 1" in line
    assert "+20.0 %" in line
    compared(capsys, a, b, "--gate", "cpu<=+5%", code=2)  # of many jobs one fails by chance
    compared(capsys, a, b, "--repeat", 2, code=2)
    compared(capsys, a, record(tmp_path / "c", ("./elsewhere", 1, 0)), code=3)
