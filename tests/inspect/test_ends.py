"""Every way to die gets its sentence, with the evidence, and none that is not its own."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import ContainerRow, EventRow, GapRow
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened

from tests.inspect.show.comparing import compare
from tests.inspect.show.pages import data_of
from tests.making.deaths import DEATHS, KILL, OVERLAY, SCRATCH, TERM, disk, make_deaths, places
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


def test_a_kernel_that_does_not_tell_is_the_reason(tmp_path: Path) -> None:
    told = "the kernel does not tell births and deaths here"
    gap = GapRow(collector="process", reason="lifeline", detail=f"{told}: built without")
    machine = Machine(loads=[Load(100, "./serve", begin=0, end=100)], gaps=[(0, gap)])
    assert ends(machine, tmp_path) == {"100 ./serve": f"not known: {told}"}


def test_a_kill_that_a_late_sample_counts(tmp_path: Path) -> None:
    load = Load(100, "./hungry", begin=0, end=100)
    _, event = exit_of(103, load, exit_signal=KILL, exit_source="accounts")
    machine = Machine(loads=[load], events=[(128, event)], kills=(103,), silent=((101, 125),))
    words = "SIGKILL by the kernel, for lack of memory in the machine or a control group"
    assert ends(machine, tmp_path) == {"100 ./hungry": words}


def test_a_kill_while_the_sample_is_taken_that_counts_it(tmp_path: Path) -> None:
    load = Load(100, "./hungry", begin=0, end=120)
    _, event = exit_of(134, load, exit_signal=KILL, exit_source="accounts")
    machine = Machine(loads=[load], events=[(129, event)], kills=(129,))
    words = "SIGKILL by the kernel, for lack of memory in the machine or a control group"
    assert ends(machine, tmp_path) == {"100 ./hungry": words}


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
    met = "exit 1, at the same time its control group's limit of 5 processes was reached"
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
        "exit 2, at the same time its container's limit of 32 processes was reached"
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
