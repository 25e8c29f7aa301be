"""Two or more sides compared, each of one or several repeats: medians, the rank test, gates, and how work scales.

Whether a difference is more than noise is asked by the Wilcoxon-Mann-Whitney rank test, exact for so few repeats
(Mann and Whitney 1947). The serial share of work is fitted to Amdahl's law (1967) by least squares.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import comb, sqrt
from operator import attrgetter
from statistics import fmean, median
from typing import Annotated

import msgspec
from vmsonar_archive.records.fields import about
from vmsonar_archive.system.errors import UsageError

from vmsonar_inspect.facts.energy import ESTIMATE
from vmsonar_inspect.facts.fields import shown_field, titled
from vmsonar_inspect.facts.quantities import CORES, COUNT, ELAPSED, RATIO, SHARE, TEXT, AnswerPart
from vmsonar_inspect.facts.runs import RunUse

#: What is compared: the name in a gate, and the field.
MEASURES = {
    "elapsed": "elapsed_seconds",
    "cpu": "cpu_seconds",
    "memory_peak": "memory_peak_bytes",
    "largest_process": "resident_peak_bytes",
    "read": "read_bytes",
    "written": "write_bytes",
    "waited_cpu": "waited_cpu",
    "waited_memory": "waited_memory",
    "waited_io": "waited_io",
    "gpu": "gpu_util",
    "energy": "energy.joules",
}
#: A gate fails only where chance would show such ranks more rarely than this.
SIGNIFICANT = 0.01
# Behind it commands may differ.
_MASK = "***"
_GATE = re.compile(r"\s*(\w+)\s*<=\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


class Side(AnswerPart):
    """One side: a name, and its repeats."""

    name: Annotated[str, TEXT]
    runs: list[RunUse]
    left_out: Annotated[
        int,
        COUNT,
        about("jobs of that name that had not ended, ended otherwise than the latest, or are older"),
    ] = 0

    @property
    def failed(self) -> list[RunUse]:
        return [run for run in self.runs if run.exit_code or run.exit_signal]

    def mark(self, measure: str) -> str:
        """What stands before its median where a repeat is not exact."""
        field = shown_field(RunUse, MEASURES[measure])
        marks = {field.mark(run) for run in self.runs} - {""}
        if measure == "energy":
            marks = {"~" for run in self.runs if run.energy.source == ESTIMATE}
        return marks.pop() if len(marks) == 1 else "~" * bool(marks)

    def values(self, measure: str) -> list[float]:
        found = map(attrgetter(MEASURES[measure]), self.runs)
        return [float(each) for each in found if each is not None]


class Difference(AnswerPart):
    """One measure of a side against another."""

    measure: str
    side: str
    against: Annotated[str, about("the name of the other side: the first, or the first with that job")]
    before: float | None = None
    after: float | None = None
    change: Annotated[float | None, SHARE, about("of the medians; null where the first is 0")] = None
    spread_before: Annotated[float | None, SHARE, about("highest less lowest, of the median")] = None
    spread_after: Annotated[float | None, SHARE] = None
    p: Annotated[
        float | None, SHARE, about("that chance alone shows this; null with less than 3 repeats")
    ] = None


class Gate(AnswerPart):
    """A limit for a change, and whether it was kept."""

    gate: str
    side: str
    limit: Annotated[float, SHARE]
    change: Annotated[float | None, SHARE]
    p: Annotated[float | None, SHARE, about("one-sided, against the limit")]
    decided: Annotated[bool, about("there are repeats enough for the test to be sure: five of each, for one")]
    failed: bool
    is_uncertain: Annotated[bool, about("figures have bounds, or are one: no gate sees all of a change")] = (
        False
    )


class ScalingStep(AnswerPart):
    """The same work on one number of cores."""

    cores: Annotated[float, CORES, titled("cores")]
    runs: Annotated[int, COUNT]
    elapsed_seconds: Annotated[float, ELAPSED, titled("elapsed")]
    speed_up: Annotated[float, RATIO, titled("speed-up"), about("against the fewest cores")]
    efficiency: Annotated[float, SHARE, titled("efficiency")]


class Scaling(AnswerPart):
    """How the work scales by Amdahl's law."""

    steps: list[ScalingStep]
    serial_share: Annotated[float, SHARE]
    serial_share_error: Annotated[float | None, SHARE, about("standard error; null for two points")]
    twice_cores: Annotated[float, CORES]
    twice_elapsed_seconds: Annotated[float, ELAPSED, about("what twice the most cores would take")]


class Comparison(AnswerPart):
    """The answer of `vmsonar compare`."""

    sides: list[Side]
    differences: list[Difference] = msgspec.field(default_factory=list)
    gates: list[Gate] = msgspec.field(default_factory=list)
    scaling: Scaling | None = None


def compare(sides: Sequence[Side], gates: Sequence[str] = ()) -> Comparison:
    """Every side against the first."""
    limits = [_parse_gate(gate) for gate in gates]
    first = sides[0]
    found = Comparison(sides=list(sides), scaling=_scaling([run for side in sides for run in side.runs]))
    for side in sides[1:]:
        found.differences += [_difference(measure, first, side) for measure in MEASURES]
        found.gates += [_gate(*limit, first, side) for limit in limits]
    return found


def compare_each(works: Sequence[Sequence[Side]]) -> Comparison:
    """Several works, each on all sides, in one answer."""
    each = [compare(sides) for sides in works]
    return Comparison(
        sides=[side for found in each for side in found.sides],
        differences=[difference for found in each for difference in found.differences],
    )


def _difference(measure: str, first: Side, side: Side) -> Difference:
    before, after = first.values(measure), side.values(measure)
    one, two = (median(values) if values else None for values in (before, after))
    repeated = min(len(before), len(after)) >= 3
    return Difference(
        measure=measure,
        side=side.name,
        against=first.name,
        before=one,
        after=two,
        change=None if one is None or two is None or not one else two / one - 1,
        spread_before=_spread(before),
        spread_after=_spread(after),
        p=min(1.0, 2 * min(rank_test(before, after), rank_test(after, before))) if repeated else None,
    )


def _spread(values: list[float]) -> float | None:
    middle = median(values) if len(values) > 1 else 0.0
    return (max(values) - min(values)) / middle if middle else None


def rank_test(lower: Sequence[float], higher: Sequence[float]) -> float:
    """How likely chance alone puts the second sample as high above the first, or higher: one-sided, exact."""
    pooled = [*lower, *higher]
    # Twice the rank, which equal values share.
    ranks = [sum(b < a for b in pooled) + sum(b <= a for b in pooled) + 1 for a in pooled]
    # How many ways there are to take so many of the ranks, by their sum.
    ways = [Counter({0: 1}), *(Counter[int]() for _ in higher)]
    for rank in ranks:
        for taken in range(len(higher), 0, -1):
            for total, number in ways[taken - 1].items():
                ways[taken][total + rank] += number
    seen, last = sum(ranks[len(lower) :]), ways[-1]
    return sum(number for total, number in last.items() if total >= seen) / last.total()


def _parse_gate(text: str) -> tuple[str, str, float]:
    match = _GATE.fullmatch(text)
    if match is None or match[1] not in MEASURES:
        raise UsageError(
            f"--gate {text}: give a measure and a limit, such as cpu<=+5% ({', '.join(MEASURES)})"
        )
    return text, match[1], float(match[2]) / 100


def _gate(text: str, measure: str, limit: float, first: Side, side: Side) -> Gate:
    """Fails where the median is over the limit, and the repeats are too by more than chance.

    Without enough repeats for a test that can be so sure, the medians alone decide nothing.
    """
    before, after = first.values(measure), side.values(measure)
    if not before or not after:
        raise UsageError(f"--gate {text}: {measure} is not known of both sides")
    allowed = [value * (1 + limit) for value in before]
    one, two = median(before), median(after)
    p = rank_test(allowed, after)
    return Gate(
        gate=text,
        side=side.name,
        limit=limit,
        change=two / one - 1 if one else None,
        p=p,
        decided=1 / comb(len(before) + len(after), len(before)) < SIGNIFICANT,
        failed=two > median(allowed) and p < SIGNIFICANT,
        is_uncertain=bool(first.mark(measure) or side.mark(measure)),
    )


def _scaling(runs: Sequence[RunUse]) -> Scaling | None:
    """The work by cores, where it is the same, was done, and on two or more numbers of them."""
    by_cores: dict[float, list[float]] = {}
    for run in runs:
        if run.cores_available and run.elapsed_seconds:
            by_cores.setdefault(run.cores_available, []).append(run.elapsed_seconds)
    done = {None if run.exit_code or run.exit_signal else run.command for run in runs}
    if len(by_cores) < 2 or len(done) > 1 or _MASK in (done.pop() or _MASK):
        return None
    times = {cores: median(values) for cores, values in sorted(by_cores.items())}
    fewest, most = min(times), max(times)
    serial, divided, error = _fit([(1 / cores, time) for cores in times for time in by_cores[cores]])
    return Scaling(
        steps=[
            ScalingStep(
                cores=cores,
                runs=len(by_cores[cores]),
                elapsed_seconds=time,
                speed_up=times[fewest] / time,
                efficiency=times[fewest] * fewest / (time * cores),
            )
            for cores, time in times.items()
        ],
        serial_share=serial / (serial + divided),
        serial_share_error=error,
        twice_cores=2 * most,
        twice_elapsed_seconds=serial + divided / (2 * most),
    )


def _fit(points: list[tuple[float, float]]) -> tuple[float, float, float | None]:
    """The a and b of t = a + b / n, neither below 0, and the standard error of a / (a + b) where it can be told."""
    mean_x, mean_y = (fmean(each) for each in zip(*points, strict=True))
    square = sum((x - mean_x) ** 2 for x, _ in points)
    b = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / square)
    a = mean_y - b * mean_x
    if a < 0:  # more than linear: what goes through 0 is another line
        a, b = 0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    if len(points) < 3:
        return a, b, None
    noise = sum((y - a - b * x) ** 2 for x, y in points) / (len(points) - 2)
    # By the variances of a and b, and their covariance.
    var_b, var_a, both = (
        noise / square,
        noise * (1 / len(points) + mean_x**2 / square),
        -mean_x * noise / square,
    )
    return a, b, sqrt(max(0.0, b * b * var_a + a * a * var_b - 2 * a * b * both)) / (a + b) ** 2
