"""A first look at a large archive, which reads processes in brief, says the same as one that reads all of them."""

from pathlib import Path

import pytest
from vmsonar_archive.parquet import derive
from vmsonar_archive.records import JobInfoRow, JobRow, ProcessInfoRow, ProcessRow
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened, opening

from tests.making.archives import append_samples, encoded, open_writer
from tests.making.machines import GIB, Load, Machine


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opening, "_SMALL", 0)
    monkeypatch.setenv("VMSONAR_CACHE", str(tmp_path / "cache"))


def told(
    root: Path, deep: bool | None
) -> tuple[dict[str, str], list[tuple[str, str]], list[str | None], int]:
    """The labels, the verdicts, the conclusions, and how many samples of processes were read."""
    with opened([root], InspectionSettings(), deep=deep, quiet=True, first=True) as found:
        (archive,) = found.sources
        verdicts = [(verdict.name, verdict.rule) for verdict in found.verdicts(archive)]
        conclusions = [advice.conclusion for advice in found.advice(archive)]
        return {job.job: job.label for job in found.jobs}, verdicts, conclusions, looks(found)


def looks(found: Inspection) -> int:
    (row,) = found.queries.rows("SELECT COUNT(DISTINCT seq) AS looks FROM process")
    return int(row["looks"])


def test_labels_verdicts_and_sizes_are_those_of_all_processes(tmp_path: Path) -> None:
    loads = [
        Load(100, "./sweep", user="bert", begin=0, cores=1.8, workers=(1.0,) * 8, memory=1 * GIB, state="R"),
        Load(200, "python3 train.py", begin=0, cores=0.2, memory=1 * GIB, state="R"),
        Load(300, "jupyter", begin=0, memory=2 * GIB),
        Load(400, "./ranks", begin=0, cores=0.4, workers=(0.9, 0.05, 0.05)),
    ]
    machine = Machine(loads=loads, cpus=2, memory=8 * GIB, pressure={"cpu": 0.9}, runnable=9)
    root = machine.record(tmp_path / "archive", 10_800)
    *brief, few = told(root, None)
    *whole, every = told(root, True)
    # The first 120, then one in twelve.
    assert (few, every) == (200, 1080)
    assert brief == whole
    rules = {rule for _, rule in brief[1]}
    assert rules >= {"starved", "deadweight", "imbalanced"}
    assert "idle_memory" not in rules


def rows(number: int, fresh: bool) -> dict[str, list[bytes]]:
    """A shell that runs one program early and another, busier one later; one that ended long before the end."""
    members = {50: ("bash", 1), 51: ("python3 early.py", 30 * min(number, 130)), 52: ("python3 late.py", 0)}
    if number >= 400:
        members[52] = ("python3 late.py", 40 * (number - 400))
    else:
        del members[52]
    if number > 130:
        del members[51]
    processes = [
        ProcessRow(pid=pid, start_ticks=pid, pgid=50, state="S", user_ticks=ticks, system_ticks=0)
        for pid, (_, ticks) in members.items()
    ]
    infos = [
        ProcessInfoRow(series_id=f"p{pid}", pid=pid, start_ticks=pid, program=name.split()[0], command=name)
        for pid, (name, _) in members.items()
        if fresh or (pid == 52 and number == 400) or number == 0
    ]
    ticks = 30 * min(number, 130) + max(0, 40 * (number - 400))
    job = JobRow(pgid=50, start_ticks=50, processes=len(members), user_ticks=ticks, system_ticks=0)
    info = JobInfoRow(series_id="j50", pgid=50, start_ticks=50, program="bash", command="bash run.sh")
    return encoded({"process": processes, "process_info": infos, "job": [job], "job_info": [info]})


@pytest.mark.parametrize(("samples", "label"), [(480, "Python in early.py"), (700, "Python in late.py")])
def test_who_came_later_and_the_last_minutes_count(samples: int, label: str, tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "archive")
    append_samples(writer, samples, rows)
    writer.close()
    labels, *_, few = told(tmp_path / "archive", None)
    assert labels == {"50": label} == told(tmp_path / "archive", True)[0]
    assert few < samples / 2


def test_the_last_sample_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is a zombie in the last one has ended."""
    monkeypatch.setattr(derive, "_WHOLE_SAMPLES", 1)
    root = Machine(loads=[Load(100, "./serve", begin=0)]).record(tmp_path / "archive", 300)
    with opened([root], InspectionSettings(), deep=None, quiet=True, first=True) as found:
        (last,) = found.queries.rows(
            "SELECT MAX(p.time) = MAX(s.time) AS same FROM process AS p, samples AS s"
        )
    assert last["same"]


def test_whole_tables_are_read_where_they_are(tmp_path: Path) -> None:
    root = Machine(loads=[Load(100, "./serve", begin=0)]).record(tmp_path / "archive", 3600)
    every = told(root, True)[-1]
    assert told(root, None)[-1] == every == 360


def test_of_many_machines_jobs_are_called_by_what_they_kept_busy(tmp_path: Path) -> None:
    for name in ("a", "b"):
        writer = open_writer(tmp_path / name)
        append_samples(writer, 200, rows)
        writer.close()
    with opened([tmp_path / "a", tmp_path / "b"], InspectionSettings(), deep=None, quiet=True) as found:
        assert {job.label for job in found.jobs} == {"Python in early.py"}
