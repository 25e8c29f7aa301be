"""A job is called by what it kept busy, and groups of one shell can be read together."""

from datetime import UTC
from pathlib import Path

import pytest
from vmsonar_archive.records import JobInfoRow, JobRow, ProcessInfoRow, ProcessRow
from vmsonar_inspect.facts.programs import label_of, load_programs
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.making.archives import append_samples, encoded, open_writer

MANY = 40


@pytest.mark.parametrize(
    ("command", "busiest", "label"),
    [
        ("python3 train.py", None, "Python in train.py"),
        ("bash /dev/fd/3", "python3 train.py", "Python in train.py"),
        ("timeout", "/usr/bin/python3.11 -u fit.py --rate 1", "Python in fit.py"),
        ("make", "cc1", "C compiler (make)"),
        ("bash build.sh", "/usr/lib/cc1plus", "C++ compiler (build.sh)"),
        ("bash", "cc1", "C compiler (cc1)"),
        ("/usr/sbin/sshd", None, "System (sshd)"),
        ("python3 -m pytest", "python3 -m pytest", "Python in pytest"),
        ("python3 pipeline.py", "ffmpeg", "ffmpeg (pipeline.py)"),
        ("python .venv/bin/vmsonar", None, "vmsonar"),
        ("/opt/conda/bin/python train.py", None, "Python in train.py"),
        ("/work/screen/.venv/bin/python fit.py", None, "Python in fit.py"),
        ("tmux: server", None, "Terminal"),
        ("postgres: writer", None, "Database (postgres)"),
        ("bash /dev/fd/3", None, "Shell"),
        ("./simulate --steps 10", "./simulate --steps 10", "simulate"),
        (None, None, "unknown"),
    ],
)
def test_what_a_job_is_called(command: str | None, busiest: str | None, label: str) -> None:
    assert label_of(load_programs(), command, busiest)[1] == label


@pytest.mark.parametrize(
    ("command", "busiest", "libraries", "label"),
    [
        ("python3 train.py", None, "numpy,scipy,torch", "Python with torch in train.py"),
        ("bash run.sh", "python3 train.py", "numpy", "Python with numpy in train.py"),
        ("python3", None, "numpy", "Python with numpy"),
        ("python3 train.py", None, "yaml", "Python in train.py"),
        ("torchrun train.py", "torchrun train.py", "numpy,torch", "PyTorch (torchrun)"),
    ],
)
def test_a_python_is_told_by_the_library_that_tells_most(
    command: str, busiest: str | None, libraries: str, label: str
) -> None:
    assert label_of(load_programs(), command, busiest, libraries)[1] == label


def rows(number: int, fresh: bool) -> dict[str, list[bytes]]:
    """A shell that runs make, which runs many short compilers; and another group of the same shell."""
    made = [100 + number // 2]
    processes = [ProcessRow(pid=50, start_ticks=50, pgid=50, user_ticks=5 * number, system_ticks=0)]
    processes += [
        ProcessRow(pid=pid, start_ticks=pid, pgid=50, user_ticks=40 * (number % 2), system_ticks=0)
        for pid in made
    ]
    infos = [ProcessInfoRow(series_id="s", pid=50, start_ticks=50, program="bash", command="bash /dev/fd/3")]
    infos += [ProcessInfoRow(series_id=f"p{pid}", pid=pid, start_ticks=pid, program="cc1") for pid in made]
    jobs = [JobRow(pgid=pgid, start_ticks=pgid, user_ticks=40 * number, system_ticks=0) for pgid in (50, 60)]
    told = [
        JobInfoRow(
            series_id=f"j{pgid}",
            pgid=pgid,
            start_ticks=pgid,
            session_id=50,
            user_name="anna",
            command=command,
        )
        for pgid, command in ((50, "bash /dev/fd/3"), (60, "sleep"))
    ]
    return encoded({"process": processes, "process_info": infos, "job": jobs, "job_info": told})


def test_many_short_programs_count_together_and_a_session_is_one_group(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    writer = open_writer(root)
    append_samples(writer, MANY, rows)
    writer.close()
    with opened([root], InspectionSettings(), deep=None, first=True) as inspection:
        assert {job.job: job.label for job in inspection.jobs} == {"50": "C compiler (cc1)", "60": "sleep"}
        (session,) = inspection.sessions(UTC)
    assert (session.name, session.jobs) == ("50 (anna)", 2)
