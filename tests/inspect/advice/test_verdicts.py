"""Known workloads get exactly the verdicts they deserve, and thin data gets none."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import EventRow, FilesystemRow
from vmsonar_archive.system.errors import UsageError
from vmsonar_inspect.advice.figures import WRITERS, filled_in
from vmsonar_inspect.advice.rules import load_rules, parse_condition
from vmsonar_inspect.advice.verdicts import _gain, judge
from vmsonar_inspect.facts.model import Advice, Size, Verdict
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.making.machines import GIB, START, Box, Load, Machine, box_id, gpu_id
from tests.making.scenes import SCENES, SECONDS, healthy, hogging, serial


def advices(machine: Machine, folder: Path, seconds: float = SECONDS, **settings: object) -> list[Advice]:
    root = machine.record(folder / "archive", seconds)
    with opened([root], InspectionSettings(**settings)) as inspection:
        return inspection.advice(next(iter(inspection.sources)))


def verdicts(machine: Machine, folder: Path, seconds: float = SECONDS, **settings: object) -> list[Verdict]:
    return [
        verdict for advice in advices(machine, folder, seconds, **settings) for verdict in advice.verdicts
    ]


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_a_known_workload_gets_exactly_its_verdicts(scene: str, tmp_path: Path) -> None:
    machine, expected = SCENES[scene]
    found = advices(machine(), tmp_path)
    assert {verdict.rule for advice in found for verdict in advice.verdicts} == expected
    for advice in found:
        assert contradiction(advice.conclusion or "", advice.verdicts) is None, advice.conclusion


def contradiction(said: str, verdicts: Sequence[Verdict]) -> str | None:
    """What a conclusion says against itself, or against the verdicts of its subject."""
    rules = {verdict.rule for verdict in verdicts if verdict.about in ("machine", "job")}
    wants_more = {verdict.rule for verdict in verdicts if verdict.gain not in ("none", "disk")} & rules
    is_enough = "would have done" in said or "would have held" in said
    if is_enough and ("larger machine would have helped:" in said or wants_more or "at least" in said):
        return "this size would have done, and more was wanted"
    if "wait for cores or memory" in said or "nothing waited" in said:
        return f"nothing waited, but {wants_more}" if wants_more else None
    return None


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("1 core would have done. A larger machine would have helped: it ran short of memory.", None),
        ("1 core would have done. A larger machine would not have helped: a higher limit would.", "job_out_of_memory"),
        ("at least 1 core. A larger machine would not have helped: nothing waited for cores.", "starved"),
    ],
)  # fmt: skip
def test_a_contradiction_is_recognized(said: str, rule: str | None) -> None:
    figures = dict.fromkeys(WRITERS, 100.0) | {"cpus": 1.0, "throttled_share": 0.0}
    every = judge(load_rules(), "job", "a", "job", figures)
    assert contradiction(said, [verdict for verdict in every if verdict.rule == rule])


def test_a_quota_or_a_limit_is_raised_without_a_larger_machine(tmp_path: Path) -> None:
    for name, why in {
        "throttled": "a higher CPU quota would, which stopped it in 60 % of its periods",
        "limited_container_thrashes": "a higher limit would (job_thrashing_at_limit)",
        "out_of_memory": "a higher limit would (job_out_of_memory)",
        "own_limit": "a higher limit would (job_out_of_memory)",
    }.items():
        (job,) = [each for each in advices(SCENES[name][0](), tmp_path / name) if "job 100" in each.name]
        assert (job.larger_would_help, job.larger_why, job.size_is_lower_bound) == (False, why, True)


@pytest.mark.parametrize(("limit", "would_help"), [(None, None), (60.0 * 2**20, False)])
def test_who_was_killed_for_lack_of_memory_got_less_than_it_wanted(
    limit: float | None, would_help: bool | None
) -> None:
    figures = {"oom_kills": 1.0, "memory_limit": limit}
    (verdict,) = judge(load_rules(), "job", "a", "job 1", figures)
    assert verdict.rule == ("job_killed_for_memory" if limit is None else "job_out_of_memory")
    assert _gain([verdict], True, figures)[0] is would_help


def test_a_verdict_names_rule_figures_and_confidence(tmp_path: Path) -> None:
    (found,) = [verdict for verdict in verdicts(serial(), tmp_path) if verdict.rule == "serial"]
    assert found.confidence == "high"
    assert found.figures == {"cores_mean": 1.0, "cores_p95": 1.0, "cpus": 8.0}
    assert found.conditions == ["cpus >= 4", "cores_p95 <= 1.15", "cores_mean >= 0.6"]
    assert found.says == "used 1.0 of 8 cores at the 95th percentile, 1.0 on average"
    assert found.name == "job 100 (Python in train.py)"


@pytest.mark.parametrize(("seconds", "sure"), [(10, []), (30, ["low"]), (100, ["low"])])
def test_from_twenty_seconds_on_something_is_said(seconds: float, sure: list[str], tmp_path: Path) -> None:
    machine = Machine(loads=[Load(100, "python3 train.py", begin=0, cores=1.0, memory=20 * GIB)])
    found = advices(machine, tmp_path, seconds)
    assert [verdict.confidence for advice in found for verdict in advice.verdicts] == sure
    # Facts are always there.
    assert found[0].cores.peak == pytest.approx(1.0)
    assert bool(sure) is (found[0].size_p95 is not None)


def test_confidence_falls_with_the_number_of_samples(tmp_path: Path) -> None:
    machine = Machine(loads=[Load(100, "python3 train.py", begin=0, cores=1.0, memory=20 * GIB)])
    (found,) = [verdict for verdict in verdicts(machine, tmp_path, seconds=400) if verdict.rule == "serial"]
    assert found.confidence == "medium"


def test_nobody_hogs_a_machine_whose_rest_is_idle(tmp_path: Path) -> None:
    machine = hogging()
    machine.loads.pop()
    machine.pressure = {"cpu": 0.05}
    machine.runnable = 7
    assert verdicts(machine, tmp_path) == []


def test_size_and_gain(tmp_path: Path) -> None:
    whole, job = advices(serial(), tmp_path)
    assert whole.size_p95 == Size(cores=1, memory_gib=32, gpus=None, flavour=None)
    assert job.size_p95 == Size(cores=1, memory_gib=32, gpus=None, flavour=None)
    assert (whole.larger_would_help, whole.larger_why) == (False, "nothing waited for cores or memory")


def test_a_crowded_machine_would_gain(tmp_path: Path) -> None:
    whole = advices(SCENES["crowded"][0](), tmp_path)[0]
    assert (whole.larger_would_help, whole.larger_why) == (
        True,
        "more cores would have been used (cores_saturated)",
    )


def test_the_peak_may_need_more_than_the_95th_percentile(tmp_path: Path) -> None:
    load = Load(100, "./burst", begin=0, cores=lambda s: 6.0 if s <= 30 else 1.5, memory=5 * GIB)
    whole = advices(Machine(loads=[load]), tmp_path)[0]
    assert whole.size_p95 == Size(cores=2, memory_gib=8, gpus=None, flavour=None)
    assert whole.size_peak == Size(cores=8, memory_gib=8, gpus=None, flavour=None)


def test_a_sites_own_flavours_are_named(tmp_path: Path) -> None:
    override = tmp_path / "rules.yaml"
    override.write_text("sizes: {flavours: [{name: s.small, cpus: 1, memory_gib: 24}]}\n")
    whole = advices(serial(), tmp_path, rules=load_rules(override))[0]
    assert whole.size_p95 == Size(cores=1, memory_gib=32, gpus=None, flavour="s.small")


def test_rules_can_be_overridden_and_switched_off(tmp_path: Path) -> None:
    override = tmp_path / "rules.yaml"
    override.write_text("rules:\n  serial: null\n  cores_far_from_used: {when: ['cpus >= 64']}\n")
    assert verdicts(serial(), tmp_path, rules=load_rules(override)) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rules: {serial: {when: ['cores_p95 !! 3']}}", "rules.serial: not a condition"),
        ("rules: {serial: {wen: []}}", "unknown field `wen`"),
        ("rules: [", "is not YAML"),
        ("thin: {samples: many}", "Expected `int`"),
    ],
)
def test_a_wrong_rules_file_is_refused_with_its_place(text: str, sentence: str, tmp_path: Path) -> None:
    override = tmp_path / "rules.yaml"
    override.write_text(text)
    with pytest.raises(UsageError, match=r"rules\.yaml") as error:
        load_rules(override)
    assert sentence in str(error.value)


def test_an_unknown_figure_keeps_a_rule_quiet() -> None:
    condition = parse_condition("threads_p95 >= 2 * cpus")
    assert condition.holds({"threads_p95": 16.0, "cpus": 8.0})
    assert not condition.holds({"threads_p95": 15.0, "cpus": 8.0})
    assert not condition.holds({"threads_p95": None, "cpus": 8.0})
    assert not condition.holds({"threads_p95": 16.0})


def test_every_figure_in_the_rules_is_known() -> None:
    from vmsonar_inspect.advice.figures import places

    for rule in load_rules().rules.values():
        lines = [*rule.when, *rule.any, *rule.unless]
        names = {name for line in lines for name in parse_condition(line).names()} | set(places(rule.says))
        assert names <= WRITERS.keys()


def test_a_healthy_job_has_advice_without_verdicts(tmp_path: Path) -> None:
    found = advices(healthy(), tmp_path)
    assert [advice.verdicts for advice in found] == [[], []]
    assert found[0].enough_data


def test_who_shares_a_busy_card_unnoticed_is_not_called_idle(tmp_path: Path) -> None:
    card = gpu_id(0)
    loads = [
        Load(100, "python3 fit.py", begin=0, cores=4, memory=10 * GIB, gpu={card: 60.0}, gpu_memory=10 * GIB),
        Load(200, "python3 serve.py", begin=0, cores=2, memory=10 * GIB, gpu={card: 0.0}, gpu_memory=9 * GIB),
    ]
    found = advices(Machine(loads=loads, gpus=(card,)), tmp_path)
    used = {advice.name: advice.gpu_util.p95 for advice in found[1:]}
    assert used == {"job 100 (Python in fit.py)": 60.0, "job 200 (Python in serve.py)": None}
    assert not any(verdict.rule == "gpu_reserved_idle" for advice in found for verdict in advice.verdicts)


def test_one_and_many_are_told_apart() -> None:
    assert filled_in("killed {oom_kills|time}", {"oom_kills": 1}) == "killed 1 time"
    assert filled_in("killed {oom_kills|time}", {"oom_kills": 2}) == "killed 2 times"
    assert filled_in("{oom_kills} <b> {no such}", {"oom_kills": 2}) == "2 <b> {no such}"


@pytest.mark.parametrize(
    ("kills", "peak", "expected"),
    [(1, 0.9, ["out_of_memory"]), (1, 0.07, ["killed_at_unknown_limit"]), (0, 0.9, []), (0, 0.07, [])],
)
def test_only_kills_at_no_known_limit_are_the_machines(
    kills: float, peak: float, expected: list[str]
) -> None:
    figures = {"oom_kills": 2.0, "machine_oom_kills": kills, "memory_share_peak": peak}
    assert [verdict.rule for verdict in judge(load_rules(), "machine", "a", "vm", figures)] == expected


@pytest.mark.parametrize(
    ("told", "rule", "says"),
    [
        (
            {"killed_at_limit": 1.0},
            "container_out_of_memory",
            "1 time: it reached its memory limit of 60 MiB",
        ),
        (
            {},
            "container_killed_for_memory",
            "1 time; up to 20 MiB were seen charged to it, and its limit is 60 MiB",
        ),
        (
            {"killed_below_limit": 1.0},
            "container_killed_below_limit",
            "1 time, with at most 20 MiB charged to it: the machine or a group above it ran out of memory",
        ),
    ],
)
def test_a_killed_container_is_told_what_ran_out(told: dict[str, float], rule: str, says: str) -> None:
    figures = {"oom_kills": 1.0, "memory_limit": 60.0 * 2**20, "memory_charged_peak": 20.0 * 2**20}
    (verdict,) = judge(load_rules(), "container", "a", "web", figures | told)
    assert (verdict.rule, verdict.says) == (rule, says)


@pytest.mark.parametrize(
    ("memory", "oom_at", "rule", "what"),
    [
        (0.99, 300, "container_out_of_memory", "the container reached its memory limit of 2.0 GiB"),
        (0.99, None, "container_out_of_memory", "the container reached its memory limit of 2.0 GiB"),
        (
            0.5,
            None,
            "container_killed_for_memory",
            "a process in it was killed for lack of memory (limit 2.0 GiB)",
        ),
    ],
)
def test_what_only_the_engine_told_may_have_come_after_the_last_row(
    memory: float, oom_at: float | None, rule: str, what: str, tmp_path: Path
) -> None:
    box = Box(box_id(1), "web", limit=2 * GIB, oom_at=oom_at)
    load = Load(100, "./serve", begin=0, end=302, container=box.container_id, memory=memory * 2 * GIB)
    told = EventRow(event_type="container_oom", container_id=box.container_id)
    events = [] if oom_at else [(302.0, told)]
    root = Machine(loads=[load], boxes=[box], events=events).record(tmp_path / "archive", 600)
    with opened([root], InspectionSettings()) as found:
        (archive,) = found.sources
        rules = {each.rule for each in found.verdicts(archive) if each.about == "container"}
        words = {event.what for _, event in found.events if event.event == "container_oom"}
    assert (rules, words) == ({rule}, {what})


@pytest.mark.parametrize(
    ("ceilings", "said_of"),
    [
        ({"open_files": 950, "open_files_limit": 1000}, "95.% of its open files, . of its tasks and ."),
        ({"tasks_limit": 103}, ". of its open files, 97.% of its tasks and ."),
        ({"connections": 65536, "connections_limit": 65536}, ". of its tasks and 100.%"),
        ({"open_files": 940, "open_files_limit": 1000, "tasks_limit": 4096, "connections": 9}, None),
        ({"open_files": 10**6}, None),
    ],
)
def test_a_limit_of_the_machine_is_named_before_all_programs_fail(
    ceilings: dict[str, int], said_of: str | None, tmp_path: Path
) -> None:
    machine = healthy()
    machine.ceilings = ceilings
    found = [each for each in verdicts(machine, tmp_path) if each.rule == "machine_ceiling"]
    assert [bool(re.search(said_of or "", each.says)) for each in found] == (
        [] if said_of is None else [True]
    )


def with_disk(
    free: Callable[[float], float],
    inodes: Callable[[float], int] = lambda s: 900_000,
    seconds: int = 2 * SECONDS,
    **told: Any,
) -> Machine:
    """A healthy machine with a disk of 100 GiB, told of once a minute."""
    machine = healthy()
    for second in range(0, seconds + 1, 60):
        values = {
            "mount_point": "/scratch",
            "read_only": False,
            "bytes_total": 100 * GIB,
            "inodes_total": 1_000_000,
            "bytes_available": int(free(second)),
            "inodes_available": inodes(second),
            **told,
        }
        machine.more.append((second, "filesystem", FilesystemRow(device_major=8, device_minor=1, **values)))
    return machine  # fmt: skip


def said(machine: Machine, folder: Path, seconds: float = SECONDS) -> list[tuple[str, str, str]]:
    return [(each.rule, each.name, each.says) for each in verdicts(machine, folder, seconds)]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    machine = with_disk(lambda s: 0 if 600 <= s < 660 else 40 * GIB)
    assert said(machine, tmp_path) == [
        ("disk_filled", "file system /scratch", "had 0 B of 100 GiB left"),
    ]


def test_a_disk_without_inodes_is_named(tmp_path: Path) -> None:
    machine = with_disk(lambda s: 40 * GIB, lambda s: 0 if s == 1200 else 500)
    assert said(machine, tmp_path) == [
        ("inodes_filled", "file system /scratch", "had 0 of 1,000,000 inodes left"),
    ]


def test_a_disk_that_will_be_full_is_named_with_the_figures(tmp_path: Path) -> None:
    machine = with_disk(lambda s: 40 * GIB - s * 4 * 2**20)
    assert said(machine, tmp_path, 2 * SECONDS) == [
        (
            "disk_will_fill",
            "file system /scratch",
            "filled by 4.0 MiB/s over 60 min; at that rate the last 26 GiB of 100 GiB are gone in 111 min",
        ),
    ]


@pytest.mark.parametrize(
    "free",
    [
        lambda s: 40 * GIB - max(0, s - 5200) * 4 * 2**20,  # long after the recording began
        lambda s: (
            40 * GIB - max(0, s - 5200) // 300 * 300 * 4 * 2**20
        ),  # in steps, as checkpoints are written
        lambda s: 40 * GIB - s % 600 * 2**20 - max(0, s - 5200) * 4 * 2**20,  # beside what comes and goes
    ],
)
def test_a_rise_that_began_late_is_named(free: Callable[[float], float], tmp_path: Path) -> None:
    machine = with_disk(free, seconds=4 * SECONDS)
    assert [rule for rule, _, _ in said(machine, tmp_path, 4 * SECONDS)] == ["disk_will_fill"]


def test_what_is_emptied_again_and_again_is_not_filling(tmp_path: Path) -> None:
    machine = with_disk(lambda s: 40 * GIB - s % 4000 * 5 * 2**20, seconds=4 * SECONDS)
    assert said(machine, tmp_path, 4 * SECONDS) == []


@pytest.mark.parametrize(
    "free",
    [
        lambda s: 40 * GIB,  # nothing changes
        lambda s: 40 * GIB + s * 4 * 2**20,  # it is emptied
        lambda s: 90 * GIB - s * 2**20,  # not within a day of what was seen
        lambda s: 40 * GIB - min(s, 900) * 16 * 2**20,  # it rose, and stopped
        lambda s: 40 * GIB - s % 600 * 20 * 2**20,  # up and down
        lambda s: 40 * GIB - s * 2**10,  # noise
    ],
)
def test_a_disk_that_does_not_fill_gets_no_verdict(free: Callable[[float], float], tmp_path: Path) -> None:
    assert said(with_disk(free), tmp_path, 2 * SECONDS) == []


def test_a_rise_of_a_few_minutes_is_no_trend(tmp_path: Path) -> None:
    assert said(with_disk(lambda s: 40 * GIB - s * 4 * 2**20), tmp_path, 900) == []


def test_what_nobody_can_write_is_not_full(tmp_path: Path) -> None:
    assert said(with_disk(lambda s: 0, read_only=True), tmp_path) == []


def ending(
    machine: Machine, *ends: tuple[int, str, float, dict[str, Any]], runtime: float = 100.0
) -> Machine:
    """Adds jobs that end at a second with a status."""
    for pgid, command, second, told in ends:
        load = Load(pgid, command, begin=second - runtime, end=second)
        machine.loads.append(load)
        event = EventRow(
            event_type="exit", subject="job", pgid=pgid, start_ticks=load.start_ticks, program=command.split()[0],
            happened=START + timedelta(seconds=second), runtime=round(runtime * 1e9), exit_source="connector", **told,
        )  # fmt: skip
        machine.events.append((second, event))
    return machine


def failing(command: str, times: int, every: float, told: dict[str, Any], runtime: float = 1.0) -> Machine:
    ends = [(500 + number, command, 200 + every * number, told) for number in range(times)]
    return ending(healthy(), *ends, runtime=runtime)


def test_jobs_that_failed_are_named_by_program(tmp_path: Path) -> None:
    machine = ending(
        healthy(),
        (501, "python3 fit.py", 300, {"exit_code": 1}),
        (502, "python3 fit.py", 500, {"exit_signal": 11}),
        (503, "python3 fit.py", 700, {"exit_code": 0}),
        (504, "./simulate -x", 900, {"exit_code": 0}),
    )
    assert said(machine, tmp_path) == [
        ("failed", "Python in fit.py", "2 of 3 ends failed, after 3 min of work")
    ]


def test_a_program_that_fails_again_and_again_is_a_crash_loop(tmp_path: Path) -> None:
    machine = failing("./serve --port 80", 8, 5.0, {"exit_code": 1})
    assert said(machine, tmp_path) == [("crash_loop", "serve", "failed 8 times in a row, every 5 s")]


@pytest.mark.parametrize(
    ("starter", "is_leader", "good_at", "words"),
    [
        ("python3", True, None, ["failed 20 times in a row, every 1 s"]),
        ("python3", True, 215, ["failed 10 times in a row, every 1 s"]),
        ("python3", True, 210, ["failed 10 times in a row, every 1 s"]),
        ("python3", False, None, []),  # a member of its parent's group, as in a build
        ("bash", True, None, []),  # somebody types
        ("sshd", True, None, []),  # somebody knocks
    ],
)
def test_children_too_short_for_a_name_are_a_crash_loop_by_who_starts_them(
    starter: str, is_leader: bool, good_at: float | None, words: list[str], tmp_path: Path
) -> None:
    machine = healthy()
    for number in range(20):
        end = EventRow(
            event_type="exit", subject="process", pid=600 + number, pgid=600 + number * is_leader, exit_code=9,
            happened=START + timedelta(seconds=201 + number), runtime=3 * 10**8, started_by=starter,
        )  # fmt: skip
        machine.events.append((210.0 if number < 10 else 220.0, end))
    if good_at is not None:
        good = EventRow(event_type="exits_counted", started_by=starter, exits=3, exit_code=0)
        machine.events.append((good_at, good))
    assert said(machine, tmp_path) == [("crash_loop", f"children of {starter}", each) for each in words]


def test_a_container_that_is_started_again_and_again_is_a_crash_loop(tmp_path: Path) -> None:
    machine, box = healthy(), Box(box_id(3), "web")
    machine.boxes = [box]
    machine.loads.append(Load(900, "./web", begin=0, container=box.container_id))
    for number in range(6):
        died = EventRow(event_type="container_die", container_id=box.container_id, exit_code=1)
        machine.events.append((200.0 + 20 * number, died))
    assert said(machine, tmp_path) == [("crash_loop", "container web", "failed 6 times in a row, every 20 s")]


@pytest.mark.parametrize(
    ("command", "told", "runtime"),
    [
        ("./serve", {"exit_code": 0}, 100),
        ("./serve", {"exit_signal": 15}, 100),  # stopped by somebody
        ("./serve", {"exit_code": 143}, 100),
        ("grep -q needle", {"exit_code": 1}, 100),  # an answer
        ("bash", {"exit_code": 130}, 100),  # a person who logs out
        ("-bash", {"exit_code": 1}, 1000),
        ("./serve", {}, 100),  # nobody knows
    ],
)
def test_ends_that_are_no_failures_get_no_verdict(
    command: str, told: dict[str, Any], runtime: float, tmp_path: Path
) -> None:
    assert said(failing(command, 8, 20.0, told, runtime), tmp_path) == []


def test_the_rules_of_ends_and_room_are_silent_on_a_healthy_machine(tmp_path: Path) -> None:
    """A disk in use, a container below its limit of processes, jobs that end well: nothing to say of any."""
    machine, box = with_disk(lambda s: 40 * GIB - s % 300 * 2**20), Box(box_id(3), "web", processes_limit=64)
    machine.boxes = [box]
    machine.loads.append(Load(900, "./web", begin=0, container=box.container_id))
    ends = [(500 + number, "python3 fit.py", 200.0 + 60 * number, {"exit_code": 0}) for number in range(10)]
    assert said(ending(machine, *ends), tmp_path) == []


def test_a_small_disk_with_a_few_blocks_left_is_full(tmp_path: Path) -> None:
    left = with_disk(lambda s: 48 * 2**10, bytes_total=16 * 2**20)
    assert said(left, tmp_path) == [("disk_filled", "file system /scratch", "had 48 KiB of 16 MiB left")]


def test_a_few_quick_attempts_get_no_verdict(tmp_path: Path) -> None:
    assert said(failing("./try", 4, 20.0, {"exit_code": 1}), tmp_path) == []


def test_processes_that_fail_in_a_build_get_no_verdict(tmp_path: Path) -> None:
    machine = healthy()
    for number in range(50):
        told = {"subject": "process", "program": "conftest", "pid": number, "pgid": 100, "exit_code": 1}
        machine.events.append((100.0 + number, EventRow(event_type="exit", **told)))
    assert said(machine, tmp_path) == []


def test_a_limit_of_processes_is_named(tmp_path: Path) -> None:
    machine, box = healthy(), Box(box_id(3), "web", processes_limit=64, refused_at=600)
    machine.boxes = [box]
    machine.loads.append(Load(900, "./web", begin=0, container=box.container_id))
    assert said(machine, tmp_path) == [
        ("pids_limit", "container web", "1 fork failed at its limit of 64 processes"),
    ]
