"""Every way to die gets its sentence, with the evidence, and none that is not its own."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmsonar_archive.records import CommandRunRow, ContainerRow, EventRow, GapRow
from vmsonar_inspect.facts.ends import Ends
from vmsonar_inspect.facts.events import query_event_rows
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened

from tests.inspect.show.comparing import compare
from tests.inspect.show.pages import data_of
from tests.making.deaths import (
    BUS,
    DEATHS,
    KILL,
    OVERLAY,
    PIPE,
    SCRATCH,
    SEGV,
    TERM,
    disk,
    make_deaths,
    places,
)
from tests.making.machines import GIB, START, Box, Load, Machine, box_id
from vmsonar.cli import run


@pytest.fixture(scope="module")
def graveyard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deaths(tmp_path_factory.mktemp("deaths") / "archive")


@pytest.fixture(scope="module")
def inspection(graveyard: Path) -> Iterator[Inspection]:
    with opened([graveyard], InspectionSettings()) as found:
        yield found


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert run(["inspect", *map(str, arguments), "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


@pytest.mark.parametrize("name", DEATHS)
def test_a_death_has_its_sentence(name: str, inspection: Inspection) -> None:
    pgid, _ = places()[name]
    (job,) = [job for job in inspection.jobs if job.pgid == pgid]
    assert job.ending.words == DEATHS[name].words


def test_what_is_near_in_time_alone_is_a_coincidence(inspection: Inspection) -> None:
    said = {job.ending.words or "": job.ending.is_coincidence for job in inspection.jobs}
    assert {words for words, is_so in said.items() if is_so} == {
        words for words in said if "at the same time" in words or "1 s after cc1 in it" in words
    }


def at(second: float, kind: str, **values: Any) -> tuple[float, EventRow]:
    return second, EventRow(event_type=kind, happened=START + timedelta(seconds=second), **values)


def ends(machine: Machine, folder: Path, seconds: float = 300) -> dict[str, str | None]:
    root = machine.record(folder / "archive", seconds)
    with opened([root], InspectionSettings()) as found:
        return {f"{job.job} {job.command}": job.ending.words for job in found.jobs}


def exit_of(second: float, load: Load, **values: Any) -> tuple[float, EventRow]:
    return at(second, "exit", subject="job", pgid=load.pgid, start_ticks=load.start_ticks, **values)


@pytest.mark.parametrize(("reason", "words"), [("poweroff", "SIGTERM at shutdown"), ("reboot", "SIGTERM at reboot"),
                                               ("stop", "SIGTERM, sender unknown")])  # fmt: skip
def test_what_ends_as_the_machine_goes_down(reason: str, words: str, tmp_path: Path) -> None:
    load = Load(100, "./serve", begin=0, end=280)
    events = [exit_of(283, load, exit_signal=TERM), at(290, "daemon_stop", reason=reason)]
    assert ends(Machine(loads=[load], events=events), tmp_path, 290) == {"100 ./serve": words}


@pytest.mark.parametrize(
    ("second", "status", "words"),
    [
        (283, {"exit_signal": KILL}, "SIGKILL, at the same time as the shutdown"),
        (283, {"exit_code": 1}, "exit 1, at the same time as the shutdown"),
        (283, {"exit_code": 143}, "exit 143, which stands for SIGTERM at shutdown"),
        (283, {"exit_code": 0}, "exit 0"),
        (250, {"exit_signal": TERM}, "SIGTERM, sender unknown"),
        (250, {"exit_signal": KILL}, "SIGKILL, sender unknown"),
    ],
)
def test_a_shutdown_is_blamed_for_what_it_asked_to_go(
    second: float, status: dict[str, int], words: str, tmp_path: Path
) -> None:
    load = Load(100, "./serve", begin=0, end=second - 3)
    events = [exit_of(second, load, **status), at(290, "daemon_stop", reason="poweroff")]
    assert ends(Machine(loads=[load], events=events), tmp_path, 290) == {"100 ./serve": words}


@pytest.mark.parametrize(
    ("passed", "status", "words", "is_wrong"),
    [
        (140, {"exit_code": 1}, "exit 1, at the same time as the reclaim notice of 08:01 UTC", False),
        (160, {"exit_code": 1}, "exit 1", False),
        (20, {"exit_signal": KILL}, "SIGKILL, at the same time as the reclaim notice of 08:01 UTC", False),
        (160, {"exit_signal": KILL}, "SIGKILL, sender unknown", False),
        (140, {"exit_signal": TERM}, "SIGTERM, at the reclaim notice of 08:01 UTC", True),
        (160, {"exit_code": 143}, "exit 143, which stands for SIGTERM, 3 min after the reclaim notice of 08:01 UTC",
         True),
    ],
)  # fmt: skip
def test_a_notice_is_blamed_for_what_it_asked_to_go(
    passed: float, status: dict[str, int], words: str, is_wrong: bool, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    load = Load(100, "./serve", begin=60 + passed - 43, end=60 + passed - 3)
    events = [at(60, "teardown_notice"), exit_of(60 + passed, load, **status)]
    assert ends(Machine(loads=[load], events=events), tmp_path) == {"100 ./serve": words}
    (summary,) = ask(capsys, tmp_path / "archive")
    assert [each["job"] for each in summary["wrong"] if each["event"] == "exit"] == ["100"] * is_wrong


def test_a_number_used_again_at_once_is_another_job(tmp_path: Path) -> None:
    loads = [Load(100, "./first", begin=0, end=100), Load(100, "./second", begin=103, end=200)]
    events = [exit_of(102, loads[0], exit_code=7), exit_of(203, loads[1], exit_code=0)]
    found = ends(Machine(loads=loads, events=events), tmp_path)
    assert found == {"100 ./first": "exit 7", "100 ./second": "exit 0"}


def test_a_leader_that_was_reaped_late_still_ended_when_it_did(tmp_path: Path) -> None:
    load = Load(100, "./late", begin=0, end=100)
    _, event = exit_of(103, load, exit_code=1)
    machine = Machine(loads=[load], events=[(150, event)])
    assert ends(machine, tmp_path) == {"100 ./late": "exit 1"}
    with opened([tmp_path / "archive"], InspectionSettings()) as found:
        (told,) = found.chosen_events()
    assert told.time == START + timedelta(seconds=103)


def test_a_job_whose_leader_went_first_goes_on(tmp_path: Path) -> None:
    load = Load(100, "./daemonize", begin=0)
    machine = Machine(loads=[load], events=[exit_of(103, load, exit_code=0)])
    assert ends(machine, tmp_path) == {
        "100 ./daemonize": "still running at the last sample; its leader ended: exit 0"
    }


def test_a_leader_that_nobody_waits_for_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loads = [Load(100, "./left", begin=0, state="Z"), Load(200, "./goes_on", begin=0)]
    machine = Machine(loads=loads, events=[exit_of(103, load, exit_code=1) for load in loads])
    assert ends(machine, tmp_path) == {
        "100 ./left": "exit 1; not waited for yet",
        "200 ./goes_on": "still running at the last sample; its leader ended: exit 1",
    }
    left, goes_on = sorted(ask(capsys, tmp_path / "archive", "jobs"), key=lambda job: str(job["job"]))
    assert (left["ended"], left["ending"]["exit_code"], left["runtime_seconds"]) == (True, 1, 103)
    assert (goes_on["ended"], goes_on["ending"]["exit_code"]) == (False, None)


@pytest.mark.parametrize(
    "told",
    [
        "the kernel does not tell births and deaths here: built without",
        "switched off by lifeline.connector: none",
    ],
)
def test_whoever_does_not_tell_is_the_reason(told: str, tmp_path: Path) -> None:
    gap = GapRow(collector="process", reason="lifeline", detail=told)
    machine = Machine(loads=[Load(100, "./serve", begin=0, end=100)], gaps=[(0, gap)])
    assert ends(machine, tmp_path) == {"100 ./serve": f"not known: {told}"}


def test_a_kill_that_a_late_sample_counts(tmp_path: Path) -> None:
    load = Load(100, "./hungry", begin=0, end=100)
    _, event = exit_of(103, load, exit_signal=KILL, exit_source="accounts")
    machine = Machine(loads=[load], events=[(128, event)], kills=(103,), silent=((101, 125),))
    words = "SIGKILL by the kernel, for lack of memory in the machine or a control group"
    assert ends(machine, tmp_path) == {"100 ./hungry": words}


def test_who_gives_up_while_the_kernel_kills_another_did_not_end_of_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = [Load(100, "./hungry", begin=70, end=100), Load(200, "./search", begin=70, end=100)]
    how: list[dict[str, Any]] = [{"exit_signal": KILL, "exit_source": "connector"}, {"exit_code": 1}]
    events = [exit_of(103, load, **values) for load, values in zip(loads, how, strict=True)]
    found = ends(Machine(loads=loads, events=events, kills=(103,)), tmp_path)
    assert found["200 ./search"] == "exit 1, at the same time the kernel killed a process for lack of memory"
    (summary,) = ask(capsys, tmp_path / "archive")
    assert [each["job"] for each in summary["wrong"]] == ["100"]


def test_somebodys_own_kill_beside_the_kernels_is_not_what_went_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = [Load(100 * n, "./serve", begin=70, end=100) for n in (1, 2)]
    ends_at = zip((102.5, 103), loads, strict=True)
    events = [exit_of(when, load, exit_signal=KILL, exit_source="connector") for when, load in ends_at]
    root = Machine(loads=loads, events=events, kills=(103,)).record(tmp_path / "archive", 300)
    told = [(job["ending"]["words"], job["ending"]["is_coincidence"]) for job in ask(capsys, root, "jobs")]
    assert told == [("SIGKILL, at the same time the kernel killed a process for lack of memory", True)] * 2
    (summary,) = ask(capsys, root)
    assert [each["event"] for each in summary["wrong"]] == ["oom_kill"] * len(summary["wrong"])


def test_a_number_of_another_boot_has_no_container(tmp_path: Path) -> None:
    """Where the kill is none of the container, its own one is the kernel's."""
    box = Box(box_id(1), "web", limit=GIB, oom_at=103)
    own, other = (Load(pgid, "./serve", begin=0, end=100, container=box.container_id, memory=0.9 * GIB)
                  for pgid in (100, 200))  # fmt: skip
    stays = Load(300, "sleep inf", begin=0, container=box.container_id)
    events = [exit_of(103, own, exit_signal=KILL, exit_source="connector", container_id=box.container_id)]
    root = Machine(loads=[own, other, stays], boxes=[box], events=events).record(tmp_path / "archive", 300)
    kill = {"event_type": "exit", "subject": "process", "pid": 201, "pgid": 200, "exit_signal": KILL}
    with opened([root], InspectionSettings()) as found:
        rows = query_event_rows(found.queries)
        earlier = START + timedelta(seconds=102)
        same = [row | kill | {"container_id": None, "happened": earlier} for row in rows[:1]]
        for more, is_proven in ((same, False), ([row | {"boot": "another"} for row in same], True)):
            judge = Ends(found.queries, rows + more, dict.fromkeys(found.sources, 10.0))
            (ending,) = [judge.of_job(key, job) for key, job in found.keyed_jobs.items() if job.pgid == 100]
            assert ending.is_proven == is_proven


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (60, "exit 1, at the same time its user had 60 of 64 tasks that it may have (ulimit -u)"),
        (50, "exit 1"),
    ],
)
def test_the_tasks_of_a_user_against_what_it_may_have(tasks: int, words: str, tmp_path: Path) -> None:
    loads = [Load(100, "./serve", begin=0, end=100, threads=10, ulimits={"processes_limit": 64}),
             Load(200, "./other", begin=0, end=104, threads=tasks - 10)]  # fmt: skip
    machine = Machine(loads=loads, events=[exit_of(99, loads[0], exit_code=1)])
    assert ends(machine, tmp_path)["100 ./serve"] == words


def test_a_kill_while_the_sample_is_taken_that_counts_it(tmp_path: Path) -> None:
    load = Load(100, "./hungry", begin=0, end=120)
    _, event = exit_of(134, load, exit_signal=KILL, exit_source="accounts")
    machine = Machine(loads=[load], events=[(129, event)], kills=(129,))
    words = "SIGKILL by the kernel, for lack of memory in the machine or a control group"
    assert ends(machine, tmp_path) == {"100 ./hungry": words}


def test_who_was_killed_may_take_long_to_end_where_the_machine_hardly_goes_on(tmp_path: Path) -> None:
    load = Load(100, "./hungry", begin=0, end=112)
    event = exit_of(125, load, exit_signal=KILL, exit_source="accounts")[1]
    for name, silent, words in (
        (
            "late",
            ((111, 135),),
            "SIGKILL by the kernel, for lack of memory in the machine or a control group",
        ),
        ("in time", (), "SIGKILL, sender unknown"),
    ):
        machine = Machine(loads=[load], events=[(138, event)], kills=(103,), silent=silent)
        assert ends(machine, tmp_path / name) == {"100 ./hungry": words}


_MACHINE = "SIGKILL by the kernel, for lack of memory in the machine or a control group"
_OWN = f"{_MACHINE}; its own has a limit of 64 MiB"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        # Counted before the job was seen is nobody's, and so is what was lost with the group.
        ({"memory_limit": 64 << 20, "oom_kills": 3}, {"oom_kills": 3}, _OWN),
        ({"memory_limit": 64 << 20, "oom_kills": 0}, {"oom_kills": 1}, _OWN),
        ({"oom_kills": 0}, {"oom_kills": 1}, _MACHINE),
        (
            {"memory_limit": 64 << 20, "oom_kills": 0},
            {"oom_kills": 1, "memory_max_events": 9},
            "SIGKILL by the kernel, its control group's limit of 64 MiB was reached",
        ),
    ],
)
def test_the_limit_of_its_own_group_is_named_where_it_was_met(
    before: dict[str, int], after: dict[str, int], words: str, tmp_path: Path
) -> None:
    load = Load(100, "./hungry", begin=0, end=104, group=lambda at: before | (after if at > 95 else {}))
    _, event = exit_of(98, load, exit_signal=KILL, exit_source="accounts")
    machine = Machine(loads=[load], events=[(100, event)], kills=(98,))
    assert ends(machine, tmp_path) == {"100 ./hungry": words}


def test_a_limit_of_processes_of_its_own_group(tmp_path: Path) -> None:
    def group(second: float) -> dict[str, int]:
        return {"pids_limit": 5, "pids_max_events": 7 if second > 95 else 4}

    loads = [Load(100 + n, "./fork", begin=begin, end=104, group=group) for n, begin in ((0, 0), (1, 96))]
    events = [(100.0, exit_of(98, load, exit_code=1)[1]) for load in loads]
    root = Machine(loads=loads, events=events).record(tmp_path / "archive", 300)
    with opened([root], InspectionSettings()) as found:
        told = {job.pgid: (job.ending.words, job.forks_refused) for job in found.jobs}
    met = "exit 1, as its control group's limit of 5 processes was reached"
    assert told == {100: (met, 3), 101: ("exit 1", 0)}, "the second was read but once"


def test_a_full_disk_that_a_late_sample_finds(tmp_path: Path) -> None:
    load = Load(100, "./serve", begin=0, end=100)
    _, event = exit_of(103, load, exit_code=1)
    machine = Machine(loads=[load], events=[(128, event)], silent=((101, 125),))
    machine.more = [disk(0), disk(130, bytes_available=0)]
    assert ends(machine, tmp_path) == {"100 ./serve": "exit 1, at the same time /scratch had 0 bytes free"}


def test_a_full_disk_is_named_before_the_overlays_on_it(tmp_path: Path) -> None:
    load = Load(100, "./serve", begin=0, end=100)
    layer = OVERLAY | {"mount_point": f"/var/lib/docker/overlay2/{'5e' * 32}/merged"}
    rows = [disk(0, base) for base in (SCRATCH, layer)]
    full = [disk(100, base, bytes_available=0) for base in (layer, SCRATCH)]
    machine = Machine(loads=[load], events=[exit_of(103, load, exit_code=1)])
    machine.more = [*rows, *full]
    assert ends(machine, tmp_path) == {"100 ./serve": "exit 1, at the same time /scratch had 0 bytes free"}
    machine.more = [*rows, full[0]]
    place = "/var/lib/docker/overlay2/5e5e5e5e5e5e/merged"
    assert ends(machine, tmp_path / "layer") == {
        "100 ./serve": f"exit 1, at the same time {place} had 0 bytes free"
    }


def test_a_short_failure_beside_a_full_disk_is_not_what_went_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, wrote = (Load(pgid, name, begin=70, end=100, write=rate)
                    for pgid, name, rate in ((100, "./short", 0.0), (200, "./wrote", 2 * GIB / 30)))  # fmt: skip
    events = [exit_of(103, load, exit_code=1) for load in (short, wrote)]
    machine = Machine(loads=[short, wrote], events=events)
    machine.more = [disk(0, bytes_available=2 * GIB), disk(100, bytes_available=0)]
    root = machine.record(tmp_path / "archive", 300)
    with opened([root], InspectionSettings()) as found:
        endings = {job.command: (job.ending.cause, job.ending.is_coincidence) for job in found.jobs}
    assert endings == {"./short": ("disk_full", True), "./wrote": ("disk_full", False)}
    (summary,) = ask(capsys, root)
    assert [event["job"] for event in summary["wrong"]] == ["200"]


def test_its_own_containers_limit_comes_before_a_disk_that_was_full_then(tmp_path: Path) -> None:
    box = Box(box_id(1), "web", processes_limit=32, refused_at=103)
    loads = [Load(100, "./serve", begin=0, end=100, container=box.container_id),
             Load(200, "sleep inf", begin=0, container=box.container_id)]  # fmt: skip
    machine = Machine(loads=loads, boxes=[box], events=[exit_of(103, loads[0], exit_code=2)])
    machine.more = [disk(0), disk(100, bytes_available=0)]
    assert ends(machine, tmp_path)["100 ./serve"] == (
        "exit 2, as its container's limit of 32 processes was reached"
    )


def test_what_is_no_one_job_has_no_end(tmp_path: Path) -> None:
    machine = Machine(loads=[Load(0, "?", begin=0, end=100), Load(100, "./serve", begin=0)])
    assert ends(machine, tmp_path)["0 ?"] is None


def container_end(machine: Machine, folder: Path) -> str | None:
    root = machine.record(folder / "archive", 300)
    with opened([root], InspectionSettings()) as found:
        (container,) = found.containers
        return container.ending.words


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([at(103, "container_die", exit_code=0)], "exit 0"),
        ([at(103, "container_die", exit_code=143)], "exit 143, which stands for SIGTERM"),
        (
            [at(103, "exit", subject="container", exit_signal=KILL), at(104, "container_die", exit_code=137)],
            "SIGKILL, sender unknown",
        ),
        (
            [at(103, "container_oom"), at(104, "container_die", exit_code=137)],
            "exit 137, which stands for SIGKILL by the kernel, its container's limit of 1.0 GiB was reached",
        ),
        ([], None),
    ],
)
def test_a_container_has_its_sentence(
    events: list[tuple[float, EventRow]], words: str | None, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web", limit=GIB)
    load = Load(100, "./serve", begin=0, end=100, container=box.container_id, memory=0.99 * GIB)
    for _, event in events:
        event.container_id = box.container_id
    assert container_end(Machine(loads=[load], boxes=[box], events=events), tmp_path) == words


@pytest.mark.parametrize(
    ("child", "words"),
    [
        (98, "SIGKILL, sender unknown"),
        (
            102.5,
            "SIGKILL by the kernel, its container's limit of 1.0 GiB was reached",
        ),  # its first process took it along
        (None, "SIGKILL by the kernel, its container's limit of 1.0 GiB was reached"),
    ],
)
def test_a_kill_by_the_kernel_is_that_of_the_child_that_it_ended(
    child: float | None, words: str, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web", limit=GIB)
    load = Load(100, "./serve", begin=0, end=100, container=box.container_id, memory=0.99 * GIB)
    events = [
        at(98, "container_oom"),
        exit_of(103, load, exit_signal=KILL),
        at(103.2, "container_die", exit_code=137),
    ]
    if child is not None:
        events.append(at(child, "exit", subject="process", pgid=100, exit_signal=KILL))
    for _, event in events:
        event.container_id = box.container_id
    assert ends(Machine(loads=[load], boxes=[box], events=events), tmp_path) == {"100 ./serve": words}


_BESIDE = (
    "SIGKILL, at the same time the kernel killed a process in its container: "
    "its container's limit of 1.0 GiB was reached"
)


@pytest.mark.parametrize("seconds", [(101, 103), (103, 101)])
@pytest.mark.parametrize("is_counted", [True, False])
def test_of_two_kills_at_once_nobody_knows_whose_the_kernels_was(
    seconds: tuple[float, float], is_counted: bool, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web", limit=GIB, oom_at=103 if is_counted else None)
    loads = [Load(100 * n, name, begin=0, end=second - 2, container=box.container_id, memory=0.5 * GIB)
             for n, name, second in ((1, "./hungry", seconds[0]), (2, "./killed", seconds[1]))]  # fmt: skip
    stays = Load(300, "sleep inf", begin=0, container=box.container_id)
    events = [
        exit_of(second, load, exit_signal=KILL, exit_source="connector", container_id=box.container_id)
        for load, second in zip(loads, seconds, strict=True)
    ]
    if not is_counted:
        events.append(at(102, "container_oom", container_id=box.container_id))
    machine = Machine(loads=[*loads, stays], boxes=[box], events=events)
    found = ends(machine, tmp_path)
    assert (found["100 ./hungry"], found["200 ./killed"]) == (_BESIDE, _BESIDE)


def test_a_kill_in_a_job_that_goes_on_counts_too(tmp_path: Path) -> None:
    """Of a member that no sample saw only the process group is known."""
    box = Box(box_id(1), "web", limit=GIB, oom_at=102)
    killed = Load(100, "./killed", begin=0, end=100, container=box.container_id, memory=0.9 * GIB)
    stays = Load(200, "./serve", begin=0, container=box.container_id)
    member = at(102, "exit", subject="process", pid=201, pgid=200, exit_signal=KILL, exit_source="connector")
    events = [member, exit_of(103, killed, exit_signal=KILL, exit_source="connector")]
    machine = Machine(loads=[killed, stays], boxes=[box], events=events)
    assert ends(machine, tmp_path)["100 ./killed"] == _BESIDE


_FILTERS = {"filters": msgspec.Raw(b'{"users":{"keep":[],"leave_out":["ben"]}}')}
_LOST = GapRow(collector="process", reason="lifeline", detail="more began and ended than could be followed")


@pytest.mark.parametrize(
    ("settings", "is_proven"),
    [
        ({}, True),
        ({"config": {"filters": msgspec.Raw(b'{"users":{"keep":[],"leave_out":[]}}')}}, True),
        ({"config": _FILTERS}, False),
        ({"more": [(10, "command_run", CommandRunRow(pid=100))]}, False),
        ({"gaps": [(60, _LOST)]}, False),
        ({"gaps": [(160, _LOST)]}, True),
    ],
)
@pytest.mark.parametrize("is_boxed", [True, False])
def test_nothing_is_proven_where_not_all_ends_are_told(
    settings: dict[str, Any], is_proven: bool, is_boxed: bool, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web", limit=GIB, oom_at=98)
    load = Load(
        100, "./hungry", begin=0, end=90, memory=GIB, container=box.container_id if is_boxed else None
    )
    events = [exit_of(98, load, exit_signal=KILL, exit_source="connector")]
    boxed = {"boxes": [box], "loads": [load, Load(200, "sleep", begin=0, container=box.container_id)]}
    machine = Machine(events=events, **(boxed if is_boxed else {"loads": [load], "kills": (98,)}), **settings)
    with opened([machine.record(tmp_path / "archive", 300)], InspectionSettings()) as found:
        (ending,) = [job.ending for job in found.jobs if job.pgid == 100]
    kind = "memory_limit" if is_boxed else "machine_memory"
    assert (ending.cause, ending.is_proven) == (kind, is_proven)


@pytest.mark.parametrize(
    ("signal", "words", "is_bad"),
    [
        (TERM, "exit 1", False),
        (PIPE, "exit 1", False),
        (KILL, "exit 1, less than a second after helper in it ended: SIGKILL, sender unknown", False),
        (SEGV, "exit 1, less than a second after helper in it ended: SIGSEGV", True),
    ],
)
def test_helpers_that_were_asked_to_go_did_not_end_their_leader(
    signal: int, words: str, is_bad: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load(100, "./serve", begin=70, end=100)
    member = at(102.5, "exit", subject="process", pid=101, pgid=100, program="helper", exit_signal=signal)
    machine = Machine(loads=[load], events=[member, exit_of(103, load, exit_code=1)])
    assert ends(machine, tmp_path) == {"100 ./serve": words}
    (summary,) = ask(capsys, tmp_path / "archive")
    assert [each["job"] for each in summary["wrong"]] == ["100"] * is_bad


def test_what_the_leader_met_comes_before_whom_it_killed(tmp_path: Path) -> None:
    load = Load(100, "./serve", begin=0, end=100)
    member = at(102.5, "exit", subject="process", pid=101, pgid=100, program="helper", exit_signal=KILL)
    machine = Machine(loads=[load], events=[member, exit_of(103, load, exit_signal=BUS)])
    machine.more = [disk(0), disk(100, bytes_available=0)]
    assert ends(machine, tmp_path) == {"100 ./serve": "SIGBUS, 3 s after /scratch had 0 bytes free"}
    load.write = lambda second: 2 * GIB / 60 if 40 < second <= 100 else 0
    machine.events = [member, exit_of(103, load, exit_code=1)]
    machine.more = [disk(40, bytes_available=2 * GIB), disk(100, bytes_available=0)]
    words = "exit 1, 3 s after /scratch had 0 bytes free; it had just written 2.0 GiB"
    assert ends(machine, tmp_path / "code") == {"100 ./serve": words}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (SCRATCH | {"device_minor": 19, "mount_point": "/data"}, "exit 1, at the same time /scratch had 0 bytes free"),
        (OVERLAY | {"bytes_total": SCRATCH["bytes_total"]},
         "exit 1, 3 s after /scratch had 0 bytes free; it had just written 2.0 GiB"),
    ],
)  # fmt: skip
def test_what_was_written_may_lie_on_another_file_system_that_filled_alike(
    other: dict[str, Any], words: str, tmp_path: Path
) -> None:
    load = Load(
        100, "./serve", begin=0, end=100, write=lambda second: 2 * GIB / 60 if 40 < second <= 100 else 0
    )
    machine = Machine(loads=[load], events=[exit_of(103, load, exit_code=1)])
    machine.more = [disk(40, bytes_available=2 * GIB), disk(40, other, bytes_available=50 * GIB),
                    disk(100, bytes_available=0), disk(100, other, bytes_available=48 * GIB)]  # fmt: skip
    assert ends(machine, tmp_path) == {"100 ./serve": words}


def test_thousands_of_kills_are_judged_in_seconds(tmp_path: Path) -> None:
    count = 5000
    loads = [Load(100 + n, "./worker", begin=n / 10, end=n / 10 + 4) for n in range(count)]
    times = [n / 10 + 5 for n in range(count)]
    events = [
        exit_of(at, load, exit_signal=KILL, exit_source="connector")
        for at, load in zip(times, loads, strict=True)
    ]
    machine = Machine(loads=loads, events=events, kills=tuple(times), interval=1)
    root = machine.record(tmp_path / "archive", 510)
    with opened([root], InspectionSettings()) as found:
        begin = time.process_time()
        judge = Ends(found.queries, query_event_rows(found.queries), dict.fromkeys(found.sources, 1.0))
        causes = [judge.of_job(key, job).cause for key, job in found.keyed_jobs.items()]
        took = time.process_time() - begin
    assert causes == ["machine_memory"] * count
    assert took < 10


@pytest.mark.parametrize(("is_told", "words"), [(True, "exit 3"), (False, "not known: no engine told it")])
def test_where_no_engine_tells_a_container_ends_with_its_first_process(
    is_told: bool, words: str, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web")
    first, later = (Load(pgid, "./serve", begin=begin, end=100, container=box.container_id)
                    for pgid, begin in ((100, 0), (200, 50)))  # fmt: skip
    swept, own = exit_of(102, later, exit_signal=KILL), exit_of(103, first, exit_code=3)
    seen = (110.0, EventRow(event_type="container_die", detail="seen in the control groups"))
    events = [swept, own, seen] if is_told else [seen]
    for _, event in events:
        event.container_id = box.container_id
    assert container_end(Machine(loads=[first, later], boxes=[box], events=events), tmp_path) == words


def test_a_limit_that_was_not_seen_to_be_reached_is_told_and_not_blamed(tmp_path: Path) -> None:
    box = Box(box_id(1), "web", limit=GIB)
    load = Load(100, "./serve", begin=0, end=100, container=box.container_id, memory=0.3 * GIB)
    events = [at(103, "container_oom"), at(104, "container_die", exit_code=137)]
    for _, event in events:
        event.container_id = box.container_id
    assert container_end(Machine(loads=[load], boxes=[box], events=events), tmp_path) == (
        "exit 137, which stands for SIGKILL by the kernel, for lack of memory in its container, whose limit is 1.0 GiB"
    )


@pytest.mark.parametrize(("code", "is_wrong"), [(137, False), (143, False), (1, True), (139, True)])
def test_a_container_that_somebody_stopped_did_not_go_wrong(
    code: int, is_wrong: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`docker stop` kills what does not listen to SIGTERM, as most first processes do not."""
    box = Box(box_id(1), "web")
    load = Load(100, "./serve", begin=0, end=200, container=box.container_id)
    event = EventRow(
        event_type="container_die", exit_code=code, container_id=box.container_id, runtime=200 * 10**9
    )
    root = Machine(loads=[load], boxes=[box], events=[(203, event)]).record(tmp_path / "archive", 300)
    (summary,) = ask(capsys, root)
    assert [each["event"] for each in summary["wrong"]] == ["container_die"] * is_wrong
    assert [each["rule"] for each in summary["verdicts"]] == ["failed"] * is_wrong


def test_who_runs_out_of_the_time_that_timeout_gave_is_not_its_victim(tmp_path: Path) -> None:
    load = Load(100, "timeout", begin=0, end=100)
    member = at(102, "exit", subject="process", pid=101, pgid=100, program="bash", exit_signal=TERM)
    events = [member, exit_of(102.2, load, exit_code=124, program="timeout")]
    found = ends(Machine(loads=[load], events=events), tmp_path)
    assert found == {"100 timeout": "exit 124, which timeout(1) gives when the time is up"}


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([at(103, "container_die", exit_code=3)], "exit 3"),
        ([at(103, "container_die", exit_code=3), at(104, "container_start")], None),
    ],
)
def test_a_containers_last_row_may_come_late_and_is_no_life(
    events: list[tuple[float, EventRow]], words: str | None, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web")
    load = Load(100, "./serve", begin=0, end=100, container=box.container_id)
    for _, event in events:
        event.container_id = box.container_id
    last = ContainerRow(container_id=box.container_id, cpu_time=1, end_boottime=103_000_000_000)
    machine = Machine(loads=[load], boxes=[box], events=events, more=[(130, "container", last)])
    assert container_end(machine, tmp_path) == words


def test_the_story_the_lists_and_json_say_the_same(
    graveyard: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pgid, _ = places()["full disk"]
    words = DEATHS["full disk"].words
    (story,) = ask(capsys, graveyard, "--job", pgid)
    assert (story["ended_by"], story["job"]["ending"]) == (
        words,
        {"words": words, "exit_code": 1, "exit_signal": None, "core_dumped": False, "source": "connector",
         "cause": "disk_full", "is_proven": False, "is_coincidence": False},
    )  # fmt: skip
    assert [event["what"] for event in story["events"]] == [words]
    assert run(["inspect", str(graveyard), "--job", str(pgid)]) == 0
    assert f"End: {words}\n" in capsys.readouterr().out
    (summary,) = ask(capsys, graveyard)
    wrong = {event["what"] for event in summary["wrong"]}
    assert words in wrong
    # A job's sentence tells of its members: they are not listed, or marked in the charts, once more.
    assert DEATHS["member killed"].words in wrong
    assert "cc1 ended: SIGKILL" not in wrong
    # What somebody asked for, and success, are no trouble.
    assert not wrong & {"exit 0", "SIGTERM, sender unknown"}


def test_the_story_names_what_its_user_may_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"open_files_limit": 1024, "processes_limit": 30000}
    loads = [Load(100, "./serve", begin=0, ulimits=limits), Load(200, "./other", begin=0)]
    root = Machine(loads=loads).record(tmp_path / "archive", 60)
    said = "At most 1,024 open files in a process, 30,000 processes of its user (ulimit)"
    for pgid, is_said in ((100, True), (200, False)):
        assert run(["inspect", str(root), "--job", str(pgid)]) == 0
        shown = capsys.readouterr().out
        assert (said in shown, "ulimit" in shown) == (is_said, is_said)


def test_only_what_leaves_no_other_reading_is_proven(inspection: Inspection) -> None:
    names = {pgid: name for name, (pgid, _) in places().items()}
    proven = {names[job.pgid or 0] for job in inspection.jobs if job.ending.is_proven}
    assert proven == {
        "machine out of memory",
        "limit of a control group",
        "kill in a container without limit",
    }


def test_events_by_kind_job_and_time(graveyard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = ask(capsys, graveyard, "events")
    kinds = {event["kind"] for event in every}
    assert kinds == {"exit", "oom", "machine"}
    assert [event["time"] for event in every] == sorted(event["time"] for event in every)
    only = ask(capsys, graveyard, "events", "--kind", "oom,teardown_notice")
    assert {event["event"] for event in only} == {"container_oom", "teardown_notice"}
    pgid, last = places()["member killed"]
    own = ask(capsys, graveyard, "events", "--job", pgid)
    assert [event["what"] for event in own] == ["cc1 ended: SIGKILL", DEATHS["member killed"].words]
    since = START + timedelta(seconds=last)
    cut = ask(capsys, graveyard, "events", "--from", f"{since:%FT%TZ}",
              "--to", f"{since + timedelta(seconds=60):%FT%TZ}")  # fmt: skip
    assert [event["pgid"] for event in cut] == [pgid, pgid]
    # Everyday events only on request.
    ended = ask(capsys, graveyard, "events", "--kind", "job_end")
    assert {event["event"] for event in ended} == {"job_end"}


def test_a_shell_whose_commands_fail_does_not_fill_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load(100, "bash configure", begin=0, end=200)
    failed = [
        at(100 + second, "exit", subject="process", pid=200 + second, pgid=100, program="grep", exit_code=1)
        for second in range(50)
    ]
    crash = at(160, "exit", subject="process", pid=300, pgid=100, program="conftest", exit_signal=11)
    events = [*failed, crash, exit_of(203, load, exit_code=0)]
    root = Machine(loads=[load], events=events).record(tmp_path / "archive", 300)
    assert [each["what"] for each in ask(capsys, root, "events")] == ["conftest ended: SIGSEGV", "exit 0"]
    assert len(ask(capsys, root, "events", "--kind", "exit")) == 52
    (story,) = ask(capsys, root, "--job", 100)
    assert [each["what"] for each in story["events"]][-4:] == ["grep ended: exit 1"] * 2 + [
        "conftest ended: SIGSEGV",
        "exit 0",
    ]
    assert len(story["events"]) == 12


def test_wrong_kinds_are_refused(graveyard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(graveyard), "events", "--kind", "exits"]) == 2
    assert "'exits' is no kind of event: give some of exit, oom, container" in capsys.readouterr().err
    assert run(["inspect", str(graveyard), "jobs", "--kind", "exit"]) == 2
    assert run(["inspect", str(graveyard), "events", "--kind", "gpu", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["nothing"].startswith("no events of kind gpu")


def test_the_list_of_events_looks_as_expected(
    graveyard: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["inspect", str(graveyard), "events", "--to", "2026-11-16T08:35"]) == 0
    compare("events-deaths", capsys.readouterr().out)


def test_the_page_lists_the_events_and_marks_what_went_wrong(graveyard: Path, tmp_path: Path) -> None:
    assert run(["inspect", str(graveyard), "--html", str(tmp_path / "page.html")]) == 0
    tables = data_of(tmp_path / "page.html")["tables"]
    _, last = places()["full disk"]
    assert START.timestamp() + last + 3 in [span[0] for span in tables["wrong"]["spans"]]
    listed = json.dumps(tables["events"], ensure_ascii=False)
    assert DEATHS["full disk"].words in listed
    assert '"exit 0"' not in listed


@pytest.mark.parametrize(
    ("events", "how", "said"),
    [
        ([at(300, "daemon_stop", reason="poweroff")], "orderly_poweroff", "The machine was powered off in order ("),
        ([at(280, "teardown_notice")], "reclaim_notice", "The machine was taken away (the cloud's notice of"),
        ([], "unknown", None),
    ],
)  # fmt: skip
def test_the_machines_own_end(
    events: list[tuple[float, EventRow]], how: str, said: str | None, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    root = Machine(loads=[Load(100, "./serve", begin=0)], events=events).record(tmp_path / "archive", 300)
    (summary,) = ask(capsys, root)
    assert [end["how"] for end in summary["ends"]] == [how]
    assert run(["inspect", str(root)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Went wrong: ")]
    assert said in line if said else "The machine" not in line
    # Of a time that was cut off nothing is said.
    (summary,) = ask(capsys, root, "--to", "2026-11-16T08:03")
    assert summary["ends"] == []


def test_a_boot_without_farewell_went_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [at(0, "boot_end", reason="no_farewell"), at(0, "daemon_start")]
    root = Machine(loads=[Load(100, "./serve", begin=0)], events=events).record(tmp_path / "archive", 300)
    (summary,) = ask(capsys, root)
    assert [event["what"] for event in summary["wrong"]] == ["the boot before ended: no farewell"]
