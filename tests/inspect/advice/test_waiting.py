"""What a full machine shows is a lower bound, who waited is named, causes are merged and ranked by their cost."""

import re
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from vmsonar_inspect.advice.figures import NO_MARKS
from vmsonar_inspect.advice.rules import load_rules
from vmsonar_inspect.advice.verdicts import judge, one_per_cause, waiting
from vmsonar_inspect.facts.model import Advice, Size, Verdict
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened

from tests.making.machines import GIB, Box, Load, Machine, box_id, gpu_id

HOUR = 3600


def found(machine: Machine, folder: Path, seconds: float = HOUR) -> tuple[list[Advice], list[Verdict]]:
    root = machine.record(folder / "archive", seconds)
    with opened([root], InspectionSettings()) as inspection:
        (archive,) = inspection.sources
        advices = inspection.advice(archive)
        return advices, inspection.verdicts(archive)


def shared(machine_load: float = 1.8, state: str = "R") -> Machine:
    """Two cores: one job has nearly all of them, another waits."""
    loads = [
        Load(100, "./sweep", user="bert", begin=0, cores=machine_load, threads=1, workers=(1.0,) * 8,
             memory=3 * GIB, state="R"),
        Load(200, "python3 train.py", begin=0, cores=2.0 - machine_load, memory=3 * GIB, state=state),
    ]  # fmt: skip
    return Machine(loads=loads, cpus=2, memory=8 * GIB, pressure={"cpu": 0.9}, runnable=9)


def test_a_job_that_waits_beside_a_neighbour_is_starved(tmp_path: Path) -> None:
    (whole, _, train), shown = found(shared(), tmp_path)
    (starved,) = train.verdicts
    assert starved.rule == "starved"
    assert starved.says == (
        "was ready to run on 1.0 cores and got 0.20: it waited 80 % of that time, "
        "while job 100 of bert (sweep) used 1.8 of 2 cores"
    )
    assert train.conclusion == (
        "at least 1 core, 4 GiB. It waited for a core 80 % of the time that it could have run. "
        "A larger machine would have helped."
    )
    assert train.larger_why == "others had the cores that it waited for (starved)"
    assert (train.size_is_lower_bound, train.waited_share) == (True, pytest.approx(0.8))
    assert whole.conclusion == (
        "at least 2 cores, 8 GiB. All cores were busy while tasks waited for one 100 % of the time. "
        "A larger machine would have helped."
    )
    # One cause, one verdict.
    (one,) = [verdict for verdict in shown if verdict.cause == "cores"]
    assert (one.rule, one.also) == ("starved", ["more_threads_than_cores", "cores_saturated"])


def test_who_sleeps_on_a_full_machine_is_not_starved(tmp_path: Path) -> None:
    (_, _, train), _ = found(shared(state="S"), tmp_path)
    assert train.verdicts == []
    assert not train.size_is_lower_bound


def test_the_recorder_runs_whenever_it_looks_and_is_not_starved(tmp_path: Path) -> None:
    machine = shared()
    machine.loads[1] = Load(200, "vmsonar daemon", begin=0, cores=0.02, memory=2 * GIB // 100, state="R")
    (_, _, recorder), _ = found(machine, tmp_path)
    assert recorder.verdicts == []


def test_who_has_used_up_its_quota_is_throttled_and_not_starved(tmp_path: Path) -> None:
    machine = shared()
    machine.boxes = [Box(box_id(7), "trainer", quota=0.2, throttled=0.3)]
    machine.loads[1].container = machine.boxes[0].container_id
    _, shown = found(machine, tmp_path)
    assert {verdict.rule for verdict in shown if "sweep" not in verdict.name} >= {"throttled"}
    assert not [verdict for verdict in shown if verdict.rule == "starved"]


def test_who_fills_the_machine_alone_is_not_starved_by_others(tmp_path: Path) -> None:
    load = Load(100, "./sweep", begin=0, cores=2.0, workers=(1.0,) * 8, memory=3 * GIB, state="R")
    machine = Machine(loads=[load], cpus=2, memory=8 * GIB, pressure={"cpu": 0.9}, runnable=9)
    _, shown = found(machine, tmp_path)
    assert {verdict.rule for verdict in shown} == {"more_threads_than_cores"}


def test_nothing_waited_is_said_only_where_the_figures_say_so(tmp_path: Path) -> None:
    busy = Load(100, "./simulate", begin=0, cores=1.5, memory=5 * GIB)
    said = {}
    for name, machine in {
        "rested": Machine(loads=[busy], cpus=2, memory=8 * GIB, pressure={"cpu": 0.01}),
        "some": Machine(loads=[busy], cpus=2, memory=8 * GIB, pressure={"cpu": 0.12}),
        "odd": Machine(loads=[busy], cpus=2, memory=8 * GIB, pressure={"cpu": 0.6}),
    }.items():
        whole = found(machine, tmp_path / name, 600)[0][0]
        said[name] = (whole.larger_would_help, whole.larger_why)
    nothing = (False, "nothing waited for cores or memory")
    waited = "some task waited for a core {} of the time, for memory 0 %"
    assert said == {
        "rested": nothing,
        "some": (False, waited.format("12 %")),
        "odd": (None, waited.format("60 %")),
    }
    # Without pressure stall information it counts how long all cores were busy while tasks were ready to run.
    assert waiting({"saturated_share": 0.0}) == (False, "nothing waited for cores")
    assert waiting({"saturated_share": 0.12}) == (False, "some task waited for a core 12 % of the time")
    assert waiting({}) == (None, "whether anything waited for cores was not recorded")


def test_a_toy_does_not_push_what_costs_more_off_the_screen(tmp_path: Path) -> None:
    machine = shared()
    box = Box(box_id(7), "toy", limit=64 * 2**20, oom_at=1200)
    machine.boxes = [box]
    machine.loads.append(Load(300, "./toy", begin=1100, end=1200, container=box.container_id))
    _, shown = found(machine, tmp_path)
    assert [verdict.rule for verdict in shown][:2] == ["starved", "container_out_of_memory"]
    assert shown[1].also == ["job_out_of_memory"]
    assert (shown[0].cost_words, shown[0].cost) == ("6.2 core hours", pytest.approx(6.2, rel=0.02))


def test_limits_of_two_containers_are_two_causes() -> None:
    figures = {"oom_kills": 1.0, "memory_limit": 60.0 * 2**20, "core_hours": 0.5}
    both = [
        *judge(load_rules(), "container", "a", "web", figures),
        *judge(load_rules(), "container", "b", "db", figures),
        *judge(load_rules(), "job", "j", "job 1", figures, NO_MARKS),
    ]
    merged = one_per_cause(load_rules(), both, {"j": "b"})
    assert [(verdict.name, verdict.also) for verdict in merged] == [
        ("web", []),
        ("db", ["job_out_of_memory"]),
    ]


def test_the_cores_are_one_cause_for_all_and_a_share_is_one_for_each_job() -> None:
    book = load_rules()

    def verdict(name: str, job: str, **told: Any) -> Verdict:
        rule = book.rules[name]
        same = {"title": rule.title, "severity": rule.severity, "cause": rule.cause}
        return Verdict(rule=name, about="job", subject=job, name=job, says="", advice="", confidence="high",
                       figures={}, conditions=[], **same, **told)  # fmt: skip

    merged = one_per_cause(
        book,
        [
            verdict("waits_for_share", "a"), verdict("wrong_mount", "b"),
            verdict("starved", "a", cost=1.0, cost_words="1.0 core hours"),
            verdict("hogging", "b", cost=3.0, cost_words="3.0 core hours"),
        ],
        {},
    )  # fmt: skip
    assert {(each.rule, *each.also, each.cost_words) for each in merged} == {
        ("waits_for_share", None), ("wrong_mount", None), ("starved", "hogging", "3.0 core hours"),
    }  # fmt: skip


def rules(machine: Machine, folder: Path, seconds: float = HOUR) -> set[str]:
    return {verdict.rule for verdict in found(machine, folder, seconds)[1]}


def beside(*loads: Load, **settings: object) -> Machine:
    """A machine whose memory is well used and whose cores are mostly busy."""
    worker = Load(1, "./simulate", begin=0, cores=6.0, threads=8, memory=12 * GIB)
    return Machine(loads=[worker, *loads], pressure={"cpu": 0.01}, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(100, "./cache", begin=0, memory=6 * GIB), {"idle_memory"}),
        (Load(100, "./cache", begin=0, memory=6 * GIB, cores=0.5), set()),
        (Load(100, "./cache", begin=0, memory=6 * GIB, read=10 * 2**20), set()),
        (Load(100, "sshd", begin=0, memory=4 * 2**20), set()),
    ],
)
def test_memory_that_is_held_and_not_touched(load: Load, expected: set[str], tmp_path: Path) -> None:
    assert rules(beside(load), tmp_path) == expected


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (
            Load(100, "jupyter", begin=0, memory=2 * GIB, cores=lambda s: 1.0 if s < 900 else 0.0),
            {"deadweight"},
        ),
        (Load(100, "jupyter", begin=0, memory=2 * GIB, cores=lambda s: 1.0 if s % 3000 < 90 else 0.0), set()),
        (Load(100, "bash", begin=0, memory=4 * 2**20), set()),
    ],
)
def test_what_lives_on_without_doing_anything(load: Load, expected: set[str], tmp_path: Path) -> None:
    machine = beside(load, interval=30)
    assert rules(machine, tmp_path, 3 * HOUR) == expected


def test_a_cpu_job_on_a_gpu_machine(tmp_path: Path) -> None:
    card = gpu_id(0)
    _, shown = found(beside(gpus=(card,)), tmp_path / "idle", 600)
    assert [(each.rule, each.also) for each in shown] == [("cpu_job_on_gpu_machine", ["gpu_unused"])]
    holder = Load(
        300, "python3 fit.py", begin=0, cores=1.0, gpu={card: 70.0}, gpu_memory=10 * GIB, memory=GIB
    )
    assert "cpu_job_on_gpu_machine" not in rules(beside(holder, gpus=(card,)), tmp_path / "busy", 600)


@pytest.mark.parametrize(
    ("busy", "siblings", "expected"),
    [
        ({0: 0.95, 4: 0.95}, [[n, n + 4] for n in range(4)], {"hyperthread_only"}),
        ({0: 0.95, 1: 0.95}, [[n, n + 4] for n in range(4)], set()),
        (dict.fromkeys(range(8), 0.95), [[n, n + 4] for n in range(4)], set()),
        ({0: 0.95, 4: 0.95}, None, set()),
    ],
)
def test_two_threads_of_one_core(
    busy: dict[int, float], siblings: list[list[int]] | None, expected: set[str], tmp_path: Path
) -> None:
    machine = beside(cpu_busy=busy, core_siblings=siblings)
    assert rules(machine, tmp_path, 600) == expected


def short_jobs(count: int, cores: float, user: str = "bert") -> list[Load]:
    return [
        Load(1000 + n, "./step", user=user, begin=10.0 * n, end=10.0 * n + 9, cores=cores)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        (short_jobs(55, 1.0), {"many_short_jobs"}),
        (short_jobs(10, 1.0), set()),
        (short_jobs(55, 0.01), set()),
        ([*short_jobs(55, 1.0), Load(50, "./big", user="bert", begin=0, cores=1.9, memory=GIB)], set()),
    ],
)
def test_many_short_jobs_of_one_user(loads: list[Load], expected: set[str], tmp_path: Path) -> None:
    machine = beside(*loads, interval=1)
    machine.loads[0].cores = 4.0
    assert rules(machine, tmp_path, 600) == expected


def users_of(inspection: Inspection) -> dict[str, tuple[int, float, list[str]]]:
    from datetime import UTC

    return {
        each.name: (each.jobs, round(each.cpu_seconds or 0), each.user_sources)
        for each in inspection.users(UTC)
    }


def test_what_runs_in_a_container_is_its_owners(tmp_path: Path) -> None:
    box, hidden = Box(box_id(1), "trainer", user="anna"), Box(box_id(2), "hidden", user="bert")
    loads = [
        Load(100, "python3 train.py", user="root", begin=0, cores=1.0, container=box.container_id),
        Load(200, "./simulate", user="anna", begin=0, cores=2.0),
        Load(300, "sshd", user="root", begin=0, cores=0.1),
        Load(400, "./unseen", user="root", begin=0, cores=0.5, container=hidden.container_id),
    ]
    machine = Machine(loads=loads, boxes=[box, hidden])
    root = machine.record(tmp_path / "archive", 600)
    with opened([root], InspectionSettings()) as inspection:
        assert users_of(inspection) == {
            "anna": (2, 1800, ["container_label", "uid"]),
            "bert": (1, 300, ["container_label"]),
            "root": (1, 60, ["uid"]),
        }
        told = "SELECT user_name, SUM(cpu_seconds) AS used FROM {} GROUP BY ALL ORDER BY 1"
        for view in ("user_usage", "user_rates", "job_usage"):
            rows = inspection.queries.rows(told.format(view))
            assert {row["user_name"]: round(row["used"]) for row in rows} == {
                "anna": 1800,
                "bert": 300,
                "root": 60,
            }
    with opened([root], InspectionSettings(user="anna")) as inspection:
        assert {job.command for job in inspection.jobs} == {"python3 train.py", "./simulate"}


def test_a_container_without_processes_counts_once_for_its_owner(tmp_path: Path) -> None:
    box = Box(box_id(1), "trainer", user="anna")
    load = Load(100, "python3 train.py", user="root", begin=0, cores=1.0, container=box.container_id)
    root = Machine(loads=[load], boxes=[box]).record(tmp_path / "archive", 600)
    with opened([root], InspectionSettings()) as inspection:
        inspection._jobs.clear()
        assert users_of(inspection) == {"anna": (1, 590, ["container"])}


def test_several_archives_of_one_machine_are_one(tmp_path: Path) -> None:
    from vmsonar_inspect.show.answers import by_machine, fleet_rows, names_of
    from vmsonar_inspect.show.page import fleet

    one, again = Machine(hostname="a"), Machine(hostname="a", cpus=16)
    clone, other = Machine(hostname="b", instance_id="i-2"), Machine(hostname="c", machine_id="f" * 32)
    again.start = one.start.replace(hour=20)
    roots = [each.record(tmp_path / str(n), 60) for n, each in enumerate((one, again, clone, other))]
    with opened(roots, InspectionSettings(), deep=None) as inspection:
        rows = fleet_rows(inspection)
    assert len(rows) == 4
    latest = [row for row, *_ in by_machine(rows)]
    assert sorted((row.hostname or "", row.cpus) for row in latest) == [("a", 16), ("b", 8), ("c", 8)]
    assert fleet.title(rows) == "3 machines in 4 archives"
    assert sorted(names_of(rows, UTC).values()) == ["a 11-16 08:00", "a 11-16 20:00", "b", "c"]


def test_a_machine_among_many_has_the_verdicts_of_its_own_page(tmp_path: Path) -> None:
    from vmsonar_inspect.show.answers import fleet_rows
    from vmsonar_inspect.show.page import fleet

    crowded, calm = shared(), Machine(hostname="b", machine_id="f" * 32)
    roots = [each.record(tmp_path / str(n), 600) for n, each in enumerate((crowded, calm))]
    with opened([roots[0]], InspectionSettings()) as alone:
        (archive,) = alone.sources
        own = [verdict.rule for verdict in alone.verdicts(archive)]
    with opened(roots, InspectionSettings(), deep=None) as inspection:
        row = next(row for row in fleet_rows(inspection) if row.archive == archive)
        sections, data = fleet.fleet_page(inspection, fleet_rows(inspection), UTC)
    assert row.verdicts == own
    assert own[0] == "starved"
    assert row.problems >= 1
    assert row.verdict_words[0] == "starved of CPU by others"
    assert "Starved of CPU by others: 1 of 2 machines" in str(
        {name: body for name, _, body in sections}["advice"]
    )
    told = next(
        column for column in data["tables"]["machines"]["columns"] if column["name"] == "verdict_words"
    )
    assert any("starved of CPU by others" in cell for cell in told["cells"])
    # The jobs have no sections here.
    assert "#job=" not in "".join(each["notes"] for each in data["details"])


def test_what_a_machine_needs_is_the_most_that_any_of_its_archives_asks_for(tmp_path: Path) -> None:
    from vmsonar_inspect.show.answers import fleet_rows
    from vmsonar_inspect.show.page import fleet

    hour = Load(100, "./solve", begin=0, cores=6.0, memory=20 * GIB)
    worked, rested = Machine(loads=[hour]), Machine()
    rested.start = worked.start.replace(hour=20)
    roots = [each.record(tmp_path / str(n), 60) for n, each in enumerate((worked, rested))]
    with opened(roots, InspectionSettings(), deep=None) as inspection:
        rows = fleet_rows(inspection)
    assert fleet.title(rows) == "1 machine in 2 archives"
    text = re.sub(r"<[^>]+>", " ", str(fleet.tiles(rows)))
    text = " ".join(text.split())
    assert "peaks 21 GiB of 32 GiB" in text
    assert "Would have done 8 cores" in text
    assert "memory 32 of 32 GiB" in text
    assert "busy 3.0 of 8" in text


def test_sizes_take_the_safe_side(tmp_path: Path) -> None:
    (whole, *_), _ = found(shared(), tmp_path)
    assert whole.size_p95 == Size(cores=2, memory_gib=8, gpus=None, flavour=None)
