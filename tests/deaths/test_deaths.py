"""Staged deaths, each for real: recorder and `inspect` name each rightly, and none wrongly."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import EventRow

from tests.deaths import jobs
from tests.deaths.stage import OFTEN, SELDOM, Stage, play
from tests.parts import requires
from tests.real import stranger
from tests.real.docker import DockerEngine

pytestmark = requires("docker", "loop_mount", "stranger")
_DUMPS = not Path("/proc/sys/kernel/core_pattern").read_text().startswith("|")
#: ext4 refuses to write while a few blocks are left.
ROOM = "had (0 bytes|[0-9.]+ KiB) free"
_NEAR = "at the same time the kernel killed a process for lack of memory"


@pytest.fixture(scope="module")
def stage(docker_engine: DockerEngine) -> Iterator[Stage]:
    with play(docker_engine) as stage:
        yield stage


def inspect(stage: Stage, *words: str) -> str:
    line = [sys.executable, "-m", "vmsonar", "inspect", str(stage.archive), *words]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def told(stage: Stage) -> list[dict[str, Any]]:
    """What `inspect` says of all jobs."""
    return list(json.loads(inspect(stage, "jobs", "--json"))["rows"])


@pytest.fixture(scope="module")
def containers(stage: Stage) -> dict[str, dict[str, Any]]:
    rows = json.loads(inspect(stage, "containers", "--json"))["rows"]
    return {row["container_id"]: row for row in rows}


@pytest.fixture(scope="module", params=[OFTEN, SELDOM])
def seen(request: pytest.FixtureRequest, stage: Stage) -> Stage:
    """The stage as each recorder saw it; most jobs live wholly between two samples of the default interval."""
    return stage.seen(request.param)


@pytest.fixture(scope="module")
def seen_told(seen: Stage) -> list[dict[str, Any]]:
    return list(json.loads(inspect(seen, "jobs", "--json"))["rows"])


def ending(told: list[dict[str, Any]], stage: Stage, name: str) -> dict[str, Any]:
    (row,) = [row for row in told if row["pgid"] == stage.jobs[name].pid and row["ended"]]
    return dict(row["ending"])


def leader(stage: Stage, name: str) -> EventRow:
    (row,) = [row for row in stage.exits(name) if row.subject == "job"]
    return row


def status(row: EventRow) -> tuple[int | None, int | None]:
    return row.exit_code, row.exit_signal


@pytest.mark.parametrize("name", jobs.PLAIN)
def test_the_status_of_a_plain_death(seen: Stage, name: str) -> None:
    death, row = jobs.PLAIN[name], leader(seen, name)
    assert status(row) == (death.code, death.signal)
    assert row.exit_source == "connector"
    assert row.runtime is not None
    assert row.runtime > 1.5e9
    if _DUMPS or not death.core:
        assert bool(row.core_dumped) == death.core
    members = {row.exit_signal for row in seen.exits(name) if row.subject == "process"}
    assert members == set(death.members.values())


@pytest.mark.parametrize("name", [name for name, death in jobs.PLAIN.items() if death.words])
def test_the_words_of_a_plain_death(seen: Stage, seen_told: list[dict[str, Any]], name: str) -> None:
    if name == "core" and not _DUMPS:
        pytest.skip("cores go to a program here")
    found = ending(seen_told, seen, name)
    words = jobs.PLAIN[name].words
    # The kernel's kills come later, but may be counted in the same interval.
    if seen.interval == SELDOM and found["is_coincidence"]:
        words = f"{words.removesuffix(', sender unknown')}, {_NEAR}"
    assert (found["words"], found["is_proven"]) == (words, False)
    assert found["cause"] is None or found["is_coincidence"]


def test_what_timeout_stopped_is_not_called_a_cause(seen: Stage, seen_told: list[dict[str, Any]]) -> None:
    words = ending(seen_told, seen, "timeout")["words"]
    assert words.startswith("exit 124, which timeout(1) gives when the time is up")


def test_a_shell_that_passes_a_signal_on(seen: Stage, seen_told: list[dict[str, Any]]) -> None:
    words = ending(seen_told, seen, "through_a_shell")["words"]
    assert words.startswith("exit 137, which stands for SIGKILL")
    assert "by the kernel" not in words


def test_a_leader_that_ends_first_gives_the_status(seen: Stage, seen_told: list[dict[str, Any]]) -> None:
    assert ending(seen_told, seen, "leader_first")["words"].startswith("exit 3")


def test_a_job_that_is_older_than_the_recorder(seen: Stage, seen_told: list[dict[str, Any]]) -> None:
    assert status(leader(seen, "older")) == (6, None)
    assert ending(seen_told, seen, "older")["words"].split(",")[0] == "exit 6"


def test_one_that_is_waited_for_late_ended_when_it_ended(seen: Stage) -> None:
    row, job = leader(seen, "late"), seen.jobs["late"]
    assert row.happened is not None
    assert job.ended is not None
    assert (job.ended - row.happened).total_seconds() > 2


def test_two_of_one_number_are_two_jobs(seen: Stage, seen_told: list[dict[str, Any]]) -> None:
    rows = seen.exits("reused")
    assert [(row.subject, row.exit_code) for row in rows] == [("job", 5), ("job", 6)]
    assert len({row.series_id for row in rows}) == 2
    pid = seen.jobs["reused"].pid
    words = [row["ending"]["words"].split(",")[0] for row in seen_told if row["pgid"] == pid]
    assert sorted(words) == ["exit 5", "exit 6"]


def test_short_ends_add_up(stage: Stage) -> None:
    counts = {"deaths-late": 0, "deaths-soon": 0, "deaths-bad": 0, None: 0}
    for row in stage.events("exits_counted"):
        if row.program in counts and row.exit_code == 0:
            counts[row.program] += row.exits or 0
    assert (counts["deaths-late"], counts["deaths-bad"]) == (50, 0)
    assert counts["deaths-soon"] <= 50 <= counts["deaths-soon"] + counts[None]
    bad = [row for row in stage.exits("crowd") if row.program == "deaths-bad"]
    assert [(row.subject, row.exit_code) for row in bad] == [("process", 1)] * 5


def test_a_kill_in_a_group_names_the_limit_of_that_group(stage: Stage, told: list[dict[str, Any]]) -> None:
    assert status(leader(stage, "group_memory")) == (None, signal.SIGKILL)
    words = "SIGKILL by the kernel, its control group's limit of 32 MiB was reached"
    assert ending(told, stage, "group_memory")["words"] == words


@pytest.mark.parametrize("name", ["group_memory_beside", "killed_beside"])
def test_two_kills_at_once_are_not_told_apart(stage: Stage, told: list[dict[str, Any]], name: str) -> None:
    found = ending(told, stage, name)
    assert (found["words"], found["is_proven"]) == (f"SIGKILL, {_NEAR}", False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stopped", "exit 9"),
        ("stopped_hard", "SIGKILL, sender unknown"),
        ("memory", "SIGKILL by the kernel, its container's limit of 32 MiB was reached"),
        ("outlived", "SIGKILL, sender unknown"),
        ("processes_later", "exit 2, as its container's limit of 5 processes was reached"),
        ("fine", "exit 0"),
    ],
)
def test_the_end_of_a_container(
    stage: Stage, told: list[dict[str, Any]], containers: dict[str, Any], name: str, words: str
) -> None:
    container_id = stage.containers[name]
    (job,) = [row for row in told if row["container_id"] == container_id]
    # The kills are proven, or near, by where the other one ended.
    if name == "stopped_hard" and _NEAR in job["ending"]["words"]:
        words = f"SIGKILL, {_NEAR}"
    said = job["ending"]["words"]
    if name == "memory" and not was_counted(stage, container_id):
        words = "SIGKILL by the kernel, for lack of memory in its container, whose limit is 32 MiB"
    if name == "processes_later":
        said = re.sub("[0-9]+ s after|less than a second after", "as", said)
    if is_deaf(stage):
        said = said.removeprefix("its container ended: ")
    assert said == words
    # Of the container itself, the engine has a number that stands for the signal.
    its = containers[container_id]["ending"]["words"].replace("exit 137, which stands for SIGKILL", "SIGKILL")
    assert its.startswith(words.split(",")[0])


def is_deaf(stage: Stage) -> bool:
    """Whether more began and ended at some time than the recorder may listen to; only the engine told then."""
    return any(gap.reason == "lifeline" for sample in stage.samples for gap in sample.gap)


def was_counted(stage: Stage, container_id: str) -> bool:
    """Whether its kill could be read before the engine had removed its group."""
    rows = [row for sample in stage.samples for row in sample.container if row.container_id == container_id]
    return any(row.oom_kills for row in rows)


def test_a_limit_that_nobody_saw_is_not_named(stage: Stage, told: list[dict[str, Any]]) -> None:
    """The container was gone before its counters could be read again; at best its last figures came in time."""
    (job,) = [row for row in told if row["container_id"] == stage.containers["processes"]]
    assert job["ending"]["words"] in (
        "exit 2", "exit 2, as its container's limit of 5 processes was reached"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("full", "full", ROOM),
        ("also_full", "full", ROOM),
        ("no_inodes", "crowded", "had 0 inodes free"),
        ("read_only", "frozen", "turned read-only"),
    ],
)
def test_a_file_system_without_room(
    stage: Stage, told: list[dict[str, Any]], name: str, place: str, what: str
) -> None:
    error = (stage.place / f"{name}.err").read_text()
    assert "Read-only file system" in error if name == "read_only" else "No space left" in error
    found = ending(told, stage, name)
    state = f"{stage.place / place} {what}"
    if name == "full":  # the recorder may see what it wrote
        written = r"(; it had just written 1[0-9] MiB)?"  # others may write as much elsewhere on this machine
        when = "(([0-9] s|less than a second) after|at the same time|as)"  # as the sample came that found it
        assert re.fullmatch(rf"exit 1, {when} {state}{written}", found["words"])
    else:
        assert re.fullmatch(f"exit 1, at the same time {state}", found["words"])
    assert not found["is_proven"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fine_beside", "exit 0"),
        ("asked_beside", "SIGTERM, sender unknown"),
        ("unrelated", f"exit 7, at the same time {{full}} {ROOM}"),
    ],
)
def test_a_full_disk_is_blamed_for_nothing_else(
    stage: Stage, told: list[dict[str, Any]], name: str, words: str
) -> None:
    assert re.fullmatch(words.format(full=stage.place / "full"), ending(told, stage, name)["words"])


@pytest.mark.parametrize("name", ["core", "full"])
def test_the_story_of_a_job_says_it_on_the_terminal(
    stage: Stage, told: list[dict[str, Any]], name: str
) -> None:
    story = " ".join(inspect(stage, "--job", str(stage.jobs[name].pid)).split())
    assert ending(told, stage, name)["words"].split(" after ")[0] in story


def test_the_events_view_has_every_leader(stage: Stage) -> None:
    rows = json.loads(inspect(stage, "events", "--json"))["rows"]
    told = {row["pid"]: (row["exit_code"], row["exit_signal"]) for row in rows if row["event"] == "exit"}
    for name, death in jobs.PLAIN.items():
        if death.code != 0:
            assert told[stage.jobs[name].pid] == (death.code, death.signal)


def test_the_events_of_one_job_one_kind_and_one_time(stage: Stage) -> None:
    def rows(*words: str) -> list[dict[str, Any]]:
        return list(json.loads(inspect(stage, "events", "--json", *words))["rows"])

    job = stage.jobs["timeout"]
    found = rows("--kind", "exit", "--job", str(job.pid))
    assert {(row["program"], row["exit_code"], row["exit_signal"]) for row in found} == {
        ("timeout", 124, None), ("sleep", None, signal.SIGTERM)
    }  # fmt: skip
    assert stage.containers["memory"] in {row["container_id"] for row in rows("--kind", "oom")}
    assert {row["kind"] for row in rows("--kind", "oom")} == {"oom"}
    begun = f"{stage.jobs['full'].begun:%Y-%m-%dT%H:%M:%SZ}"
    late = {row["pid"] for row in rows("--kind", "exit", "--from", begun)}
    early = {row["pid"] for row in rows("--kind", "exit", "--to", begun)}
    assert (job.pid in early, job.pid in late) == (True, False)
    assert (stage.jobs["full"].pid in early, stage.jobs["full"].pid in late) == (False, True)


def test_only_the_kernels_kills_are_called_proven(stage: Stage, told: list[dict[str, Any]]) -> None:
    jobs_of = {job.pid: name for name, job in stage.jobs.items()}
    boxes_of = {container: name for name, container in stage.containers.items()}
    proven = [row for row in told if row["ending"]["is_proven"]]
    names = {boxes_of.get(row["container_id"]) or jobs_of.get(row["pgid"]) for row in proven}
    assert names <= {"memory", "group_memory", None}  # None: what else ran on this machine
    assert "group_memory" in names or is_deaf(stage)


def test_a_good_end_has_no_cause(seen_told: list[dict[str, Any]]) -> None:
    causes = {row["ending"]["cause"] for row in seen_told if row["ending"]["exit_code"] == 0}
    assert causes == {None}


def test_the_recorder_had_no_rights(stage: Stage) -> None:
    assert set(stage.recorder["Uid"].split()) == {str(stranger.STRANGER)}
    assert {int(stage.recorder[name], 16) for name in ("CapEff", "CapPrm", "CapAmb")} == {0}
