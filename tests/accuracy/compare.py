"""Holds recorded figures against the truth: each is right, lies within its marked bounds, is null, or is wrong."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from vmsonar_archive.records import JobRow

from tests.accuracy.recording import Key, Recorded
from tests.accuracy.truth import TrueJob, Truth
from tests.accuracy.workloads import MIB, NOBODY, Workload

TICK = 10**7  # nanoseconds; the kernel's USER_HZ is 100 everywhere we run
#: What sums over users and the machine may be off by, and jobs, and jobs with exact accounts.
SUM_SHARE, JOB_SHARE, ACCOUNTS_SHARE = 0.01, 0.02, 0.01
MEMORY_SHARE = 0.05
#: What no share says anything about: some ticks, some metadata of a file system, an actor's own pages.
FEW_TICKS, FEW_BYTES, FEW_PAGES = 3, MIB, 3 * MIB
IDLE_TICKS = 2
#: A shorter life that no sample saw may be in the figures of the job that started it.
SHORT = 1.0
#: Ticks from the start of a program to that of an actor which it starts.
STARTING = 200
#: User ids from here on exist only during one performance.
FIRST_UID = 100_000


@dataclass(frozen=True)
class Cell:
    """One figure of one job, user or machine in one mode, beside the truth."""

    workload: str
    mode: str
    figure: str
    of: str
    truth: float
    value: float | None
    low: float | None = None
    high: float | None = None
    verdict: str = "wrong"
    note: str = ""

    @property
    def is_right(self) -> bool:
        return self.verdict in ("right", "bounds", "null")

    @property
    def error(self) -> float | None:
        """Share of the truth by which the value is off; None where there is no share to speak of."""
        return None if self.value is None or not self.truth else (self.value - self.truth) / self.truth

    def __str__(self) -> str:
        bounds = "" if self.low is None and self.high is None else f" bounds [{self.low}, {self.high}]"
        return (
            f"{self.workload} {self.mode} {self.figure} of {self.of}: {self.verdict}: truth {self.truth:.6g}, "
            f"recorded {self.value}{bounds} {self.note}".strip()
        )

    def plain(self) -> dict[str, object]:
        return asdict(self)


@dataclass
class _Figure:
    """What was recorded: a value, and its bounds where it has any."""

    value: float | None
    low: float | None = None
    high: float | None = None
    flagged: bool = False

    @property
    def has_bounds(self) -> bool:
        return self.low is not None or self.high is not None


def judge(truth: float, figure: _Figure, share: float, least: float, must_close: bool = False) -> str:
    """`right`, `bounds`, `outside` (of its bounds), or `wrong`; what is marked and has no bounds is a lower one.

    `open`: it has no upper bound where there must be one.
    """
    slack = max(share * truth, least)
    if figure.value is not None and abs(figure.value - truth) <= slack:
        return "right"
    if not figure.has_bounds and not figure.flagged:
        return "wrong"
    if must_close and figure.high is None:
        return "open"
    if not figure.has_bounds:
        return "bounds" if (figure.value or 0) - least <= truth else "outside"
    low = figure.low if figure.low is not None else -math.inf
    high = figure.high if figure.high is not None else math.inf
    return "bounds" if low - least <= truth <= high + least else "outside"


@dataclass
class _Expected:
    """A job that has rows, and what it must show: its own, and that of jobs which were folded into it."""

    job: TrueJob
    keys: list[Key]
    folded: list[TrueJob] = field(default_factory=list)

    def truths(self, figure: str, is_told: bool) -> tuple[float, float]:
        """The least and the most that it can show; who was told of every birth knows whose child each was."""
        own = getattr(self.job, figure)
        most = own + sum(getattr(job, figure) for job in self.folded)
        return (most if is_told else own), most


def nearest(truths: tuple[float, float], figure: _Figure) -> float:
    """Of all that may be true, what is nearest to the figure."""
    value = figure.value or 0.0
    if figure.has_bounds:
        value = (
            max(value, truths[0]) if figure.high is None else min(max(value, truths[0]), max(figure.high, 0))
        )
    return min(max(value, truths[0]), truths[1])


class Comparison:
    """One workload in one recording."""

    def __init__(self, workload: Workload, truth: Truth, recorded: Recorded) -> None:
        self._workload = workload
        self._truth = truth
        self._recorded = recorded
        self._mode = recorded.mode
        self._share = ACCOUNTS_SHARE if self._mode.accounts else JOB_SHARE

    def cells(self) -> Iterator[Cell]:
        expected, lost = self._expected()
        yield from lost
        for one in expected.values():
            yield from self._job(one)
        for uid, cpu in self._truth.users.items():
            if uid >= FIRST_UID:
                yield self._user(uid, cpu / 1e9)

    def _cell(self, figure: str, of: str, truth: float, found: _Figure, verdict: str, note: str = "") -> Cell:
        return Cell(
            self._workload.name,
            self._mode.name,
            figure,
            of,
            truth,
            found.value,
            found.low,
            found.high,
            verdict,
            note,
        )

    def _expected(self) -> tuple[dict[str, _Expected], list[Cell]]:
        """The jobs that have rows, with what was folded into them; and those that should have had rows."""
        jobs = self._truth.jobs
        found = {name: _Expected(job, keys) for name, job in jobs.items() if (keys := self._keys(job))}
        lost = []
        for name, job in jobs.items():
            heir: str | None = name
            while heir is not None and heir not in found:
                parent = jobs[heir].parent
                heir = None if parent is None else self._truth.by_job(parent).name
            if heir != name and not self._may_fold(job):
                lost.append(
                    self._cell("job", name, job.cpu / TICK, _Figure(None), "missing", f"{job.lived:.2f} s")
                )
            if heir not in (None, name) and found[heir].job.uid == job.uid:
                found[heir].folded.append(job)
        return found, lost

    def _may_fold(self, job: TrueJob) -> bool:
        if self._recorded.was_away(job.begun, job.ended):
            return True
        if self._recorded.saw(job.begun, job.ended):
            return False
        return job.lived < SHORT or not self._mode.lifeline

    def _is_nobodys(self, job: TrueJob) -> bool:
        infos = [self._recorded.infos.get(key) for key in self._keys(job)]
        return all(info is None or info.user_id is None for info in infos)

    def _keys(self, job: TrueJob) -> list[Key]:
        """The recorded jobs of its group that began in its time."""
        later = [
            other.start
            for other in self._truth.jobs.values()
            if other.pgid == job.pgid and other.start > job.start
        ]
        end = min([*later, job.ended // TICK + 2])
        begin = job.start - (1 if job.leads else STARTING)
        return [key for key in self._recorded.rows if key[0] == job.pgid and begin <= key[1] < end]

    def _job(self, one: _Expected) -> Iterator[Cell]:
        rows = [self._recorded.rows[key][-1] for key in one.keys]
        yield self._cpu(one, rows)
        if self._workload.has_io:
            yield self._io("read_bytes", one, "read", rows)
            yield self._io("write_bytes", one, "written", rows)
        if one.job.is_told:
            yield self._runtime(one)
        if one.job.name in self._workload.peaks:
            yield self._peak(one)

    def _truth_of(self, one: _Expected, figure: str, found: _Figure, unit: int = 1) -> float:
        is_told = self._mode.lifeline and self._mode.life == "steady"
        least, most = one.truths(figure, is_told)
        return nearest((least / unit, most / unit), found)

    def _cpu(self, one: _Expected, rows: list[JobRow]) -> Cell:
        found = _cpu(rows)
        truth = self._truth_of(one, "cpu", found, TICK)
        verdict = judge(truth, found, self._share, FEW_TICKS, self._mode.lifeline)
        note = f"with {', '.join(job.name for job in one.folded)}" if one.folded else ""
        if one.job.name in self._workload.idle:
            verdict = "right" if (found.value or 0) <= IDLE_TICKS else "wrong"
            note = "does nothing"
        return self._cell("cpu", one.job.name, truth, found, verdict, note)

    def _io(self, figure: str, one: _Expected, attribute: str, rows: list[JobRow]) -> Cell:
        found = _sum(rows, figure, f"{figure}_low", f"{figure}_high")
        found.flagged = any(row.io_partial for row in rows)
        truth = self._truth_of(one, attribute, found)
        verdict = judge(truth, found, self._share, FEW_BYTES)
        if found.value is None and not found.has_bounds:
            # Whoever may read it, and had a living process to read, knows something.
            may_read = self._mode.as_root or one.job.uid == NOBODY
            seen = self._recorded.saw(one.job.begun, one.job.ended)
            verdict = "missing" if self._mode.accounts or (may_read and seen) else "null"
        return self._cell(figure, one.job.name, truth, found, verdict)

    def _runtime(self, one: _Expected) -> Cell:
        lines = [self._recorded.usage[key] for key in one.keys if key in self._recorded.usage]
        longest = max(lines, key=lambda line: line["runtime_seconds"] or 0.0, default=None)
        found = _Figure(None)
        if longest is not None:
            found.value, found.low = longest["runtime_seconds"], longest["runtime_seconds_low"]
            found.high = None if found.low is None else found.value
        unknown = self._before_first_sight(one)
        lived = one.job.lived - unknown
        truth = min(max(lived, found.value or 0.0), one.job.lived_at_most - unknown)
        verdict = judge(truth, found, self._share, 0.3)
        return self._cell("runtime", one.job.name, truth, found, verdict)

    def _before_first_sight(self, one: _Expected) -> float:
        """Seconds for which only a leader lived that nobody saw: the job is known since its first member."""
        first = min(start for _, start in one.keys)
        if first <= one.job.start + 1 or (self._mode.lifeline and self._mode.life == "steady"):
            return 0.0
        return (first - one.job.start) / 100

    def _peak(self, one: _Expected) -> Cell:
        rows = [row for key in one.keys for row in self._recorded.rows[key]]
        found = _peak(rows)
        if found.value is None:
            lines = [self._recorded.usage[key] for key in one.keys]
            found.value = max(
                (line["memory_peak"] for line in lines if line["memory_peak"] is not None), default=None
            )
        truth = self._workload.peaks[one.job.name]
        verdict = judge(truth, found, MEMORY_SHARE, FEW_PAGES)
        if found.value is None and not found.has_bounds:
            verdict = "missing" if self._mode.accounts else "null"
        return self._cell("memory_peak", one.job.name, truth, found, verdict)

    def _user(self, uid: int, truth: float) -> Cell:
        line = self._recorded.users.get(uid)
        found = _Figure(None) if line is None else _seconds([line])
        jobs = [job for job in self._truth.jobs.values() if job.uid == uid or len(self._truth.users) > 1]
        if any(self._recorded.was_away(job.begun, job.ended) for job in jobs):
            truth = min(truth, found.value or 0.0)  # what was used while nobody recorded is in no sum
        # Each job is told in whole ticks.
        least = max(FEW_TICKS, len(jobs) / 2) / 100
        verdict = judge(truth, found, SUM_SHARE, least, self._mode.lifeline)
        if line is None and all(self._may_fold(job) or self._is_nobodys(job) for job in jobs):
            verdict = "null"  # nobody saw any process of this user, or whose they are
        return self._cell("user_cpu", str(uid), truth, found, verdict)


def _cpu(rows: list[JobRow]) -> _Figure:
    figure = _Figure(sum((row.user_ticks or 0) + (row.system_ticks or 0) for row in rows))
    if any(row.cpu_ticks_low is not None or row.cpu_ticks_high is not None for row in rows):
        own = [(row.user_ticks or 0) + (row.system_ticks or 0) for row in rows]
        figure.low = sum(_or(row.cpu_ticks_low, value) for row, value in zip(rows, own, strict=True))
        figure.high = sum(_or(row.cpu_ticks_high, value) for row, value in zip(rows, own, strict=True))
    figure.flagged = any(row.unattributed for row in rows)
    return figure


def _or(bound: int | None, value: int) -> int:
    return value if bound is None else bound


def _sum(rows: list[JobRow], value: str, low: str, high: str) -> _Figure:
    """Null if no row has it; without an upper bound if a row with a lower one has none."""
    figure = _Figure(_total([getattr(row, value) for row in rows]))
    figure.low, figure.high = (
        _total([getattr(row, low) for row in rows]),
        _total([getattr(row, high) for row in rows]),
    )
    return figure


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _peak(rows: list[JobRow]) -> _Figure:
    with_peak = [row for row in rows if row.memory_peak is not None]
    if not with_peak:
        return _Figure(None)
    last = with_peak[-1]
    figure = _Figure(last.memory_peak, last.memory_peak_low, last.memory_peak_high)
    if last.memory_peak_source == "sampled" and not figure.has_bounds:
        figure.low = last.memory_peak
    return figure


def _seconds(lines: list[dict[str, Any]]) -> _Figure:
    """The CPU time of some users, with bounds where the views have them."""
    value = sum(line["cpu_seconds"] or 0.0 for line in lines)
    low, high = (
        sum(
            line["cpu_seconds"] or 0.0
            if line.get(f"cpu_seconds_{end}") is None
            else line[f"cpu_seconds_{end}"]
            for line in lines
        )
        for end in ("low", "high")
    )
    if any(line["unattributed"] and line["cpu_seconds_high"] is None for line in lines):
        return _Figure(value, low, flagged=True)  # a flag without bounds: more may be missing
    return _Figure(value) if low == high == value else _Figure(value, low, high)


def compare_machine(recorded: Recorded, used: tuple[float, float]) -> Cell:
    """The sum over all jobs and their bounds against what all processes used from first to last sample."""
    found = _seconds(list(recorded.usage.values()))
    truth = nearest(used, found)
    is_told = recorded.mode.lifeline and recorded.mode.life == "steady"
    verdict = judge(truth, found, SUM_SHARE, 0.2, recorded.mode.lifeline)
    if is_told and verdict == "bounds" and (found.value or 0.0) > truth:
        verdict = "wrong"  # whoever used it, nothing counts twice
    mode = recorded.mode.name
    return Cell(
        "machine", mode, "machine_cpu", "all jobs", truth, found.value, found.low, found.high, verdict
    )
