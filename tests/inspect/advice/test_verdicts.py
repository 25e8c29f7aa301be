"""Known workloads get exactly the verdicts they deserve, and thin data gets none."""

from pathlib import Path

import pytest
from vmsonar_archive.system.errors import UsageError
from vmsonar_inspect.advice.figures import filled_in
from vmsonar_inspect.advice.rules import load_rules, parse_condition
from vmsonar_inspect.advice.verdicts import judge
from vmsonar_inspect.facts.model import Advice, Size, Verdict
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.making.machines import GIB, Load, Machine, gpu_id
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
    assert {verdict.rule for verdict in verdicts(machine(), tmp_path)} == expected


def test_a_verdict_names_rule_figures_and_confidence(tmp_path: Path) -> None:
    (found,) = [verdict for verdict in verdicts(serial(), tmp_path) if verdict.rule == "serial"]
    assert found.confidence == "high"
    assert found.figures == {"cores_mean": 1.0, "cores_p95": 1.0, "cpus": 8.0}
    assert found.conditions == ["cpus >= 2", "cores_p95 <= 1.15", "cores_mean >= 0.6"]
    assert found.says == "used 1.0 of 8 cores at the 95th percentile, 1.0 on average"
    assert found.name == "job 100 (python3 train.py)"


def test_nothing_is_said_about_two_minutes(tmp_path: Path) -> None:
    assert verdicts(serial(), tmp_path, seconds=100) == []


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
    from vmsonar_inspect.advice.figures import WRITERS, places

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
    assert used == {"job 100 (python3 fit.py)": 60.0, "job 200 (python3 serve.py)": None}
    assert not any(verdict.rule == "gpu_reserved_idle" for advice in found for verdict in advice.verdicts)


def test_one_and_many_are_told_apart() -> None:
    assert filled_in("killed {oom_kills|time}", {"oom_kills": 1}) == "killed 1 time"
    assert filled_in("killed {oom_kills|time}", {"oom_kills": 2}) == "killed 2 times"
    assert filled_in("{oom_kills} <b> {no such}", {"oom_kills": 2}) == "2 <b> {no such}"


@pytest.mark.parametrize(
    ("in_containers", "expected"), [(0, ["out_of_memory"]), (1, ["out_of_memory"]), (2, [])]
)
def test_only_kills_outside_of_containers_are_the_machines(in_containers: int, expected: list[str]) -> None:
    figures = {"oom_kills": 2.0, "container_oom_kills": float(in_containers)}
    assert [verdict.rule for verdict in judge(load_rules(), "machine", "a", "vm", figures)] == expected


@pytest.mark.parametrize(
    ("below", "rule", "says"),
    [
        (0.0, "container_out_of_memory", "1 time: it reached its memory limit of 60 MiB"),
        (
            1.0,
            "container_killed_below_limit",
            "1 time, with at most 20 MiB charged to it: the machine or a group above it ran out of memory",
        ),
    ],
)
def test_a_killed_container_is_told_what_ran_out(below: float, rule: str, says: str) -> None:
    figures = {"oom_kills": 1.0, "memory_limit": 60.0 * 2**20, "memory_charged_peak": 20.0 * 2**20}
    (verdict,) = judge(load_rules(), "container", "a", "web", figures | {"killed_below_limit": below})
    assert (verdict.rule, verdict.says) == (rule, says)
