"""The first screen: as much of everything as fits it, the most important first, and where the rest is."""

import shlex
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from vmsonar_inspect.model_advice import Severity, Verdict
from vmsonar_inspect.render.columns import (
    Column,
    container_columns,
    event_columns,
    gap_columns,
    is_a_job,
    job_columns,
)
from vmsonar_inspect.render.grid import Grid
from vmsonar_inspect.render.summary import Busy, Overview, energy_sentence, header
from vmsonar_inspect.render.verdicts import size_sentence, verdict_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

#: Lines of a screen where nobody looks at one.
_LINES = 40
_LONGEST_PATH = 28


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rows of what are shown."""

    jobs: int
    containers: int
    wrong: int
    gaps: int
    verdicts: int
    airy: bool = True
    costs: bool = True


#: From all that one wants to see at once down to what a small terminal can hold.
PLANS = (
    Plan(jobs=5, containers=5, wrong=3, gaps=3, verdicts=6),
    Plan(jobs=5, containers=3, wrong=2, gaps=2, verdicts=5),
    Plan(jobs=4, containers=3, wrong=2, gaps=1, verdicts=4),
    Plan(jobs=3, containers=2, wrong=2, gaps=1, verdicts=3),
    Plan(jobs=3, containers=2, wrong=1, gaps=0, verdicts=3, airy=False),
    Plan(jobs=3, containers=1, wrong=1, gaps=0, verdicts=2, airy=False),
    Plan(jobs=3, containers=1, wrong=0, gaps=0, verdicts=2, airy=False, costs=False),
    Plan(jobs=3, containers=0, wrong=0, gaps=0, verdicts=2, airy=False, costs=False),
    Plan(jobs=2, containers=0, wrong=0, gaps=0, verdicts=2, airy=False, costs=False),
    Plan(jobs=2, containers=0, wrong=0, gaps=0, verdicts=1, airy=False, costs=False),
)


class Screen:
    """The first screen of one machine."""

    def __init__(self, overview: Overview, zone: tzinfo, top: int | None = None) -> None:
        self.overview = overview
        self.zone = zone
        self.top = top

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        yield self._fitting(console, options)

    def _fitting(self, console: "Console", options: "ConsoleOptions") -> "RenderableType":
        """The richest plan that fits; who asks for so many rows gets them."""
        if self.top is not None:
            return self.planned(Plan(self.top, self.top, self.top, self.top, self.top))
        # The last line is the prompt's.
        room = console.size.height - 1 if console.is_terminal else _LINES
        free = options.update(height=None)

        def fits(plan: Plan) -> bool:
            return len(console.render_lines(self.planned(plan), free, pad=False)) <= room

        # Each plan is shorter than the one before, so that few have to be tried.
        place = bisect_left(PLANS, True, hi=len(PLANS) - 1, key=fits)
        return self.planned(PLANS[place])

    def planned(self, plan: Plan) -> "RenderableType":
        """The screen by one plan."""
        overview = self.overview
        parts: list[RenderableType] = [header(overview.machine, overview.coverage, self.zone)]
        if not overview.coverage.samples:
            return Group(*parts)
        parts += [*_air(plan), Busy(overview)]
        hidden: list[str] = []
        for title, view, columns, rows, most in self._lists(plan):
            if rows and most:
                parts += [*_air(plan), self._title(title, len(rows), most, view), Grid(columns, rows[:most])]
            elif rows:
                hidden.append(view)
        parts += self._advice(plan)
        if hidden:
            # In brackets, because one at a time is asked for.
            parts.append(Text(f"More: {self._command('[' + ' | '.join(hidden) + ']')}", style="dim"))
        return Group(*parts)

    def _lists(self, plan: Plan) -> list[tuple[str, str, list[Column], Sequence[object], int]]:
        overview, zone = self.overview, self.zone
        jobs = [job for job in overview.jobs if is_a_job(job)]
        return [
            ("Top jobs", "jobs", job_columns(zone, False), jobs, plan.jobs),
            ("Top containers", "containers", container_columns(zone, False), overview.containers, plan.containers),
            ("What went wrong", "summary --json", event_columns(zone), overview.wrong, plan.wrong),
            ("What was not seen", "gaps", gap_columns(zone), overview.gaps, plan.gaps),
        ]  # fmt: skip

    def _advice(self, plan: Plan) -> "list[RenderableType]":
        overview = self.overview
        if not overview.advice:
            return []
        verdicts = varied([verdict for advice in overview.advice for verdict in advice.verdicts])
        parts = [*_air(plan), self._title("Advice", len(verdicts), plan.verdicts, "advice")]
        parts += [verdict_lines(verdict, brief=True) for verdict in verdicts[: plan.verdicts]]
        parts.append(size_sentence(overview.advice[0]))
        return [*parts, energy_sentence(overview.energy)] if plan.costs else parts

    def _title(self, text: str, found: int, most: int, view: str) -> Text:
        more = f" ({most} of {found}; all: {self._command(view)})" if found > most else ""
        return Text.assemble((text, "bold underline"), (more, "dim"), no_wrap=True, overflow="ellipsis")

    def _command(self, view: str) -> str:
        path = shlex.quote(self.overview.machine.source)
        return f"vmsonar inspect {path if len(path) <= _LONGEST_PATH else 'PATH'} {view}"


def _air(plan: Plan) -> "list[RenderableType]":
    return [Text()] if plan.airy else []


def varied(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Problems first, and of each kind one before the second of any."""
    seen: dict[str, int] = {}
    placed = []
    for verdict in verdicts:
        seen[verdict.title] = seen.get(verdict.title, 0) + 1
        placed.append((verdict.severity is not Severity.PROBLEM, seen[verdict.title], verdict))
    return [verdict for _, _, verdict in sorted(placed, key=lambda each: each[:2])]
