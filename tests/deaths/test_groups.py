"""Jobs that meet the limit of a control group of their own, which is no container."""

import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import JobInfoRow, JobRow

from tests.deaths.jobs import CROWDED, HUNGRY, python
from tests.deaths.stage import APART, MIB, control_group
from tests.parts import requires
from tests.real.wait import let_pass, wait_until

pytestmark = requires("root")
FILES, TASKS = 321, 4321
#: Nobody's number, and what it may have.
USER, FEW = 54321, 30


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def pids(place: Path) -> dict[str, int]:
    """The process groups of two jobs that meet a limit at one moment, and of one that somebody kills then."""
    line = [
        sys.executable,
        "-m",
        "vmsonar",
        "daemon",
        "--archive",
        str(place / "archive"),
        "--interval",
        "1s",
    ]
    go = str(place / "go")
    with ExitStack() as stack:
        recorder = stack.enter_context(subprocess.Popen([*line, "--for", "60s"], stderr=subprocess.DEVNULL))
        stack.callback(recorder.terminate)
        wait_until(lambda: any(place.glob("archive/*/*/*/sample-*")), 30, "the first sample")
        groups = {
            "memory": stack.enter_context(control_group("memory", 64 * MIB)),
            "tasks": stack.enter_context(control_group("pids", 5)),
        }
        scripts = {"memory": HUNGRY, "tasks": CROWDED}
        running = {
            name: subprocess.Popen(
                ["prlimit", f"--nofile={FILES}", f"--nproc={TASKS}", *python(script), str(groups[name]), go],
                process_group=0, stderr=stack.enter_context((place / name).open("wb")),
            )
            for name, script in scripts.items()
        }  # fmt: skip
        # A shell that ends as soon as a fork fails.
        crowd = f"for n in $(seq {2 * FEW}); do sleep 6 & done"
        running["user"] = subprocess.Popen(
            ["prlimit", f"--nproc={FEW}", "/bin/sh", "-c", crowd], process_group=0, user=USER, group=USER,
            stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        running["killed"] = subprocess.Popen(["sleep", "60"], process_group=0)
        let_pass(APART)
        Path(go).touch()
        assert running["memory"].wait(20) == -signal.SIGKILL
        running["killed"].kill()
        assert running["tasks"].wait(20) == 1
        running["killed"].wait()
        running["user"].wait(20)
        let_pass(2.5)
    assert "Resource temporarily unavailable" in (place / "tasks").read_text()
    return {name: process.pid for name, process in running.items()}


def inspect(place: Path, *words: str) -> list[dict[str, Any]]:
    line = [sys.executable, "-m", "vmsonar", "inspect", str(place / "archive"), *words, "--json"]
    told = subprocess.run(line, capture_output=True, check=True, timeout=60).stdout
    return list(json.loads(told)["rows"])


def rows(place: Path, pgid: int) -> tuple[list[JobRow], list[JobInfoRow]]:
    with open_archive(place / "archive") as opened:
        samples = list(opened.samples())
    return (
        [row for sample in samples for row in sample.job if row.pgid == pgid],
        [row for sample in samples for row in sample.job_info if row.pgid == pgid],
    )


@pytest.mark.parametrize(
    ("name", "words", "is_proven"),
    [
        ("memory", "SIGKILL by the kernel, its control group's limit of 64 MiB was reached", True),
        ("tasks", "exit 1, as its control group's limit of 5 processes was reached", False),
        ("killed", "SIGKILL, sender unknown", False),
    ],
)
def test_the_limit_is_named_with_the_end_of_its_job(
    place: Path, pids: dict[str, int], name: str, words: str, is_proven: bool
) -> None:
    (job,) = [row for row in inspect(place, "jobs") if row["pgid"] == pids[name]]
    assert (job["ending"]["words"], job["ending"]["is_proven"]) == (words, is_proven)


def test_the_tasks_of_its_user_are_named_with_the_end_of_a_job(place: Path, pids: dict[str, int]) -> None:
    (job,) = [row for row in inspect(place, "jobs") if row["pgid"] == pids["user"]]
    said = re.match(
        r"exit [0-9]+, at the same time its user had ([0-9]+) of 30 tasks", job["ending"]["words"]
    )
    assert said, job["ending"]["words"]
    assert 0.9 * FEW <= int(said[1]) <= FEW
    assert (job["ending"]["cause"], job["ending"]["is_coincidence"]) == ("user_tasks", True)


def test_the_counters_are_in_the_row(place: Path, pids: dict[str, int]) -> None:
    found, _ = rows(place, pids["memory"])
    last = found[-1]
    # Between the two samples it may have been a zombie that was counted already.
    assert {row.oom_kills for row in found if row.memory_limit == 64 * MIB} == {0, 1}
    assert (last.oom_kills, last.processes) == (1, 0)
    assert (last.memory_max_events or 0) > 0
    (*_, last), _ = rows(place, pids["tasks"])
    assert (last.pids_limit, last.pids_max_events) == (5, 1)


def test_jobs_without_a_group_have_none_of_it(place: Path, pids: dict[str, int]) -> None:
    found, _ = rows(place, pids["killed"])
    told = {(row.memory_limit, row.oom_kills, row.pids_limit, row.pids_max_events) for row in found}
    assert told == {(None, None, None, None)}


def test_the_users_own_limits(place: Path, pids: dict[str, int]) -> None:
    _, infos = rows(place, pids["memory"])
    assert (infos[-1].open_files_limit, infos[-1].processes_limit) == (FILES, TASKS)
