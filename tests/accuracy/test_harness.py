"""The harness itself: its verdicts, its truth, its plans, and the page that it wrote."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.records import JobRow

import tests.accuracy.__main__
from tests.accuracy.__main__ import BATCH, performances, run
from tests.accuracy.compare import Cell, Comparison, _Figure, compare_machine, judge
from tests.accuracy.mixtures import mixture
from tests.accuracy.modes import ALL, Mode
from tests.accuracy.page import FIGURES, page
from tests.accuracy.recording import Recorded
from tests.accuracy.stage import Performance
from tests.accuracy.truth import TrueJob, Truth, _accounts, _jobs, accounts_in
from tests.accuracy.workloads import EVERY, Workload

PAGE = Path(__file__).parents[2] / "docs/accuracy.md"


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (_Figure(1000), "right"),
        (_Figure(1019), "right"),
        (_Figure(1021), "wrong"),
        (_Figure(900, low=900, high=1100), "bounds"),
        (_Figure(900, low=900), "bounds"),
        (_Figure(900, low=1010, high=1100), "outside"),
        (_Figure(900, flagged=True), "bounds"),
        (_Figure(None), "wrong"),
    ],
)
def test_a_verdict(figure: _Figure, verdict: str) -> None:
    assert judge(1000, figure, 0.02, 3) == verdict


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (_Figure(1010, low=900), "right"),
        (_Figure(900, low=900), "open"),
        (_Figure(900, flagged=True), "open"),
        (_Figure(900, low=900, high=1100), "bounds"),
    ],
)
def test_where_births_are_heard_a_bound_has_two_ends(figure: _Figure, verdict: str) -> None:
    assert judge(1000, figure, 0.02, 3, must_close=True) == verdict


@pytest.mark.parametrize(("lifeline", "verdict"), [(True, "wrong"), (False, "bounds")])
def test_a_machine_that_used_more_than_it_did_is_wrong_where_births_are_heard(
    lifeline: bool, verdict: str
) -> None:
    line = {"cpu_seconds": 20.0, "cpu_seconds_low": 15.0, "cpu_seconds_high": 30.0, "unattributed": True}
    recorded = Recorded(Mode(10, lifeline=lifeline), usage={(1, 1): line, (2, 2): line})
    assert compare_machine(recorded, (35.0, 36.0)).verdict == verdict
    assert compare_machine(recorded, (39.0, 40.1)).verdict == "right"
    assert compare_machine(recorded, (61.0, 61.5)).verdict == "outside"


def test_few_ticks_say_nothing() -> None:
    assert judge(0, _Figure(3), 0.02, 3) == "right"
    assert judge(0, _Figure(4), 0.02, 3) == "wrong"


def job(name: str, pgid: int, cpu: int, parent: str | None, seconds: tuple[float, float]) -> TrueJob:
    begun, ended = (int(moment * 1e9) for moment in seconds)
    return TrueJob(name, pgid, int(seconds[0] * 100), 50101, parent, begun, ended, cpu * 10**7, names=[name])


def compared(
    mode: Mode, rows: list[JobRow], jobs: list[TrueJob], idle: tuple[str, ...] = ()
) -> dict[str, str]:
    recorded = Recorded(mode, times=[0, 10 * 10**9, 20 * 10**9], walls=[0, 0, 0])
    for row in rows:
        recorded.rows[row.pgid, row.start_ticks] = [row]
    truth = Truth({one.name: one for one in jobs}, {})
    cells = Comparison(Workload("one", "", "", idle=idle, has_io=False), truth, recorded).cells()
    return {cell.of: cell.verdict for cell in cells if cell.figure in ("cpu", "job")}


ROOT = job("root", 7, 100, None, (1, 19))


def test_a_job_that_no_sample_saw_counts_with_the_one_who_started_it() -> None:
    short = job("short", 8, 50, "root", (2, 2.5))
    row = JobRow(pgid=7, start_ticks=100, user_ticks=140, system_ticks=10)
    assert compared(Mode(10, lifeline=True), [row], [ROOT, short]) == {"root": "right"}
    assert compared(
        Mode(10, lifeline=True), [JobRow(pgid=7, start_ticks=100, user_ticks=100)], [ROOT, short]
    ) == {"root": "wrong"}


def test_samples_alone_do_not_know_whose_child_it_was() -> None:
    """An orphan's time may have gone to whoever adopted it; the users' sums show that."""
    short = job("short", 8, 50, "root", (2, 2.5))
    for ticks, verdict in ((100, "right"), (120, "right"), (150, "right"), (90, "wrong"), (160, "wrong")):
        row = JobRow(pgid=7, start_ticks=100, user_ticks=ticks)
        assert compared(Mode(10), [row], [ROOT, short]) == {"root": verdict}
    row = JobRow(pgid=7, start_ticks=100, user_ticks=60, cpu_ticks_low=60, cpu_ticks_high=105)
    assert compared(Mode(10), [row], [ROOT, short]) == {"root": "bounds"}


def test_a_job_of_seconds_must_be_known_where_births_are_heard() -> None:
    unseen = job("unseen", 8, 50, "root", (2, 6))
    row = JobRow(pgid=7, start_ticks=100, user_ticks=150)
    assert compared(Mode(10), [row], [ROOT, unseen]) == {"root": "right"}
    assert compared(Mode(10, lifeline=True), [row], [ROOT, unseen])["unseen"] == "missing"


def test_a_job_that_a_sample_saw_must_have_rows() -> None:
    seen = job("seen", 8, 50, "root", (9, 11))
    row = JobRow(pgid=7, start_ticks=100, user_ticks=150)
    assert compared(Mode(10), [row], [ROOT, seen])["seen"] == "missing"


def test_nothing_on_a_process_that_did_nothing() -> None:
    idler = job("idler", 8, 0, "root", (2, 18))
    rows = [
        JobRow(pgid=7, start_ticks=100, user_ticks=100),
        JobRow(pgid=8, start_ticks=200, user_ticks=3, cpu_ticks_low=0, cpu_ticks_high=50),
    ]
    assert compared(Mode(10), rows, [ROOT, idler], ("idler",)) == {"root": "right", "idler": "wrong"}


def test_bounds_of_cpu_time_must_hold() -> None:
    row = JobRow(pgid=7, start_ticks=100, user_ticks=60, cpu_ticks_low=50, cpu_ticks_high=110)
    assert compared(Mode(10), [row], [ROOT]) == {"root": "bounds"}
    row.cpu_ticks_high = 90
    assert compared(Mode(10), [row], [ROOT]) == {"root": "outside"}


def test_groups_with_the_same_number_are_told_apart() -> None:
    lines = [
        "job first 10 1000 10 50 0 -",
        "job inside 11 1100 10 55 1 first",
        "job second 10 9000 10 90 0 -",
        "write second 10 9100 4096",
        "end first 10 2000",
    ]
    found = _jobs(list(_accounts(lines).values()))
    assert {name: one.names for name, one in found.items()} == {
        "first": ["first", "inside"],
        "second": ["second"],
    }
    assert (found["first"].ended, found["second"].written) == (2000, 4096)


def test_a_seed_gives_the_same_plan_every_time() -> None:
    assert mixture(3) == mixture(3)
    assert len({mixture(seed).plan for seed in range(200)}) == 200


def test_accounts_are_named_once() -> None:
    for workload in [*EVERY, *map(mixture, range(200))]:
        named = workload.plan.split().count("job")
        assert len(accounts_in(workload.plan)) == named, workload.name


def test_a_mode_is_a_configuration() -> None:
    for mode in ALL:
        assert yaml.safe_load(mode.config(Path("/run/socket")))["collectors"]["gpu"] == "none"
    assert len({mode.name for mode in ALL}) == len(ALL)


def test_the_page_shows_every_workload_and_figure() -> None:
    """Its numbers are of the machine that wrote it; what it lists must be what runs."""
    text = PAGE.read_text()
    for workload in EVERY:
        assert f"| {workload.name} | {workload.about} |" in text, "run make accuracy"
    for title, *_ in (FIGURES[name] for name in FIGURES if name != "job"):
        assert f"## {title}\n" in text, "run make accuracy"
    begin = page([], [], 0, {"job": 0.02, "accounts": 0.01, "sums": 0.01, "memory": 0.05})
    words = begin[begin.index("**How to read") : begin.index("## Workloads")]
    assert words in text, "run make accuracy"


def test_what_users_and_the_machine_used_beside_mixtures_is_on_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def perform(workloads: list[Workload], *_: object, **__: object) -> Performance:
        wrong = Cell("machine", "10s-root-accounts", "machine_cpu", "all jobs", 31.5, 38.2)
        user = Cell("seed-3", "10s-root-accounts", "user_cpu", "100001", 1.0, 1.0, verdict="right")
        is_drawn = any(workload.name.startswith("seed-") for workload in workloads)
        return Performance([wrong, user] if is_drawn else [replace(wrong, verdict="right")], {}, 1.0)

    monkeypatch.setattr(tests.accuracy.__main__, "perform", perform)
    modes = [Mode(10, as_root=True, lifeline=True, accounts=True)]
    cells, _ = run(performances(2 * BATCH), modes)
    lives = {
        "interval": 10.0,
        "kind": "loop",
        "truth": 6.0,
        "value": 6.1,
        "high": None,
        "lives": 5,
        "starts": 6,
    }
    text = page(cells, modes, 20, {"job": 0.02, "accounts": 0.01, "sums": 0.01, "memory": 0.05}, [lives])
    assert "begun again by the engine | +1.7% | **5 of 6** |" in text
    sums = text[text.index("## CPU time of all jobs together") :]
    assert "| machine | +21.3% |" in sums
    assert "| mixtures | **+21.3%** |" in sums
    assert "| 10 s root accounts | 4 | 2 | 0 | 0 | **2** |" in text


def test_one_performance_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Cell("seed-20", "10s-root-accounts", "cpu", "root", 1.0, 1.0, verdict="right")

    def perform(workloads: list[Workload], *_: object, **__: object) -> Performance:
        if any(workload.name == "seed-0" for workload in workloads):
            raise TimeoutError("still on stage")
        return Performance([right], {}, 1.0)

    monkeypatch.setattr(tests.accuracy.__main__, "perform", perform)
    assert run(performances(2 * BATCH, ["none"]), []) == ([right], False)
