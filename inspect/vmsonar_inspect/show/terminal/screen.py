"""The first screen: the machine, how busy it was, and as much of everything else as fits, most important first."""

import shlex
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text
from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.machine import RATES
from vmsonar_inspect.facts.model import Coverage, EnergyUse, Machine, Moment
from vmsonar_inspect.show.answers import Summary
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.terminal.lists import USE_TITLES, Grid, size_sentence, use_row, verdict_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


def header(machine: Machine, coverage: Coverage, zone: tzinfo) -> "RenderableType":
    """What the machine is and what was covered."""
    first = Text(plain(machine.hostname or machine.archive), style="bold", no_wrap=True, overflow="ellipsis")
    for part in _hardware(machine):
        first.append(f"  {part}", style="")
    lines = [first]
    if system := " · ".join(
        plain(part) for part in (machine.os_name, machine.kernel_release, machine.cpu_model) if part
    ):
        lines.append(Text(system, style="dim", no_wrap=True, overflow="ellipsis"))
    lines.append(Text(covered(coverage, zone)))
    return Group(*lines)


def _hardware(machine: Machine) -> list[str]:
    place = " ".join(plain(part) for part in (machine.cloud_provider, machine.instance_type) if part)
    cards = f"{machine.gpus} {plain(', '.join(machine.gpu_models) or 'GPU')}" if machine.gpus else ""
    size = f"{units.count(machine.cpus)} cores, {units.size(machine.memory_bytes)}"
    return [part for part in (place, size if machine.cpus else "", cards) if part]


def covered(coverage: Coverage, zone: tzinfo) -> str:
    """The time and how complete it is, in a sentence."""
    if coverage.first is None or coverage.last is None:
        return "The archive holds no samples."
    first, last = in_zone(coverage.first, zone), in_zone(coverage.last, zone)
    if coverage.samples == 1:
        return f"One sample, at {first:%Y-%m-%d %H:%M:%S %Z}: rates need two."
    end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    text = f"{first:%Y-%m-%d %H:%M} to {end} {last:%Z} ({units.duration(coverage.span_seconds)}), "
    text += f"{units.count(coverage.samples)} samples, {_completeness(coverage)}"
    return text + (f", {coverage.boots} boots" if coverage.boots > 1 else "")


def _completeness(coverage: Coverage) -> str:
    share = coverage.coverage
    if share is None:
        return "coverage unknown"
    lost = coverage.span_seconds - coverage.covered_seconds
    if coverage.damaged:
        return f"DAMAGED: some cannot be read, {min(share * 100, 99.9):.1f} % of this time seen"
    if lost <= 0.5 * (coverage.interval_seconds or 1):
        return "complete"
    # Never round up to 100 %.
    return (
        f"{min(share * 100, 99.9):.1f} % seen ({units.plural(coverage.holes, 'gap')}, {units.duration(lost)})"
    )


_ENDS = {
    "orderly_poweroff": "The machine was powered off in order",
    "reboot": "The machine was rebooted",
    "reclaim_notice": "The machine was taken away",
    "no_farewell": "The machine ended without farewell",
}


def end_sentence(summary: Summary) -> str:
    """How the machine itself ended, where that is known."""
    if not summary.ends or summary.ends[-1].how not in _ENDS:
        return ""
    return f"{_ENDS[summary.ends[-1].how]} ({summary.ends[-1].evidence})."


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy each resource was, with its course over time in the space that is left."""

    summary: Summary
    timeline: Sequence[Moment]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        resources = self._resources()
        use = self.summary.use
        rows = [USE_TITLES, *(use_row(use, name, of) for name, of, _ in resources)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        left = max(8, options.max_width - sum(widths) - 2 * len(widths))
        courses = ["over time"]
        for name, _, top in resources:
            courses.append(units.sparkline([getattr(at, name) for at in self.timeline], top, left))
        for place, (row, course) in enumerate(zip(rows, courses, strict=True)):
            cells = [
                cell.rjust(width) if at in (1, 2, 3) else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            line = Text("  ".join(cells), style="bold" if place == 0 else "", no_wrap=True)
            yield line.append(f"  {course}", style="" if place == 0 else "cyan")

    def _resources(self) -> list[tuple[str, str, float | None]]:
        """The fields that are shown, each with what there was of it in words and as the top of its sparkline."""
        use, machine = self.summary.use, self.summary.machine
        has_gpus = machine.gpus or use.gpu_util.peak is not None
        return [
            ("cores", f"{units.count(use.cpus)} cores", use.cpus),
            ("memory_bytes", units.size(use.memory_total_bytes), use.memory_total_bytes),
            *([("gpu_util", units.plural(machine.gpus or 1, "GPU"), 100.0)] if has_gpus else []),
            *((name, "", None) for name in RATES),
        ]


def energy_sentence(energy: EnergyUse) -> Text:
    """Energy and emissions in one line."""
    mark = "~" if energy.source == "estimate" else ""
    used = f"{mark}{units.energy(energy.joules)}, of which {units.energy(energy.idle_joules)} idle"
    text = Text(f"Energy: {used}; {mark}{units.grams(energy.grams_co2e)} CO2e ")
    factor = " ".join(part for part in (energy.factor_country, energy.factor_year) if part)
    return text.append(f"({energy.source}, {factor}, PUE {energy.pue:g})", style="dim")


#: Lines of the first screen when it goes to a pipe.
_LINES = 40
_LONGEST_PATH = 28


@dataclass(frozen=True, slots=True)
class ScreenPlan:
    """How many rows of each list the screen shows."""

    jobs: int
    containers: int
    wrong: int
    gaps: int
    verdicts: int
    airy: bool = True
    costs: bool = True

    @property
    def air(self) -> list[Text]:
        return [Text()] if self.airy else []


#: From the fullest screen down to what a small terminal can hold.
PLANS = (
    ScreenPlan(jobs=5, containers=5, wrong=3, gaps=3, verdicts=6),
    ScreenPlan(jobs=5, containers=3, wrong=2, gaps=2, verdicts=5),
    ScreenPlan(jobs=4, containers=3, wrong=2, gaps=1, verdicts=4),
    ScreenPlan(jobs=3, containers=2, wrong=2, gaps=1, verdicts=3),
    ScreenPlan(jobs=3, containers=2, wrong=1, gaps=0, verdicts=3, airy=False),
    ScreenPlan(jobs=3, containers=1, wrong=1, gaps=0, verdicts=2, airy=False),
    ScreenPlan(jobs=3, containers=1, wrong=0, gaps=0, verdicts=2, airy=False, costs=False),
    ScreenPlan(jobs=3, containers=0, wrong=0, gaps=0, verdicts=2, airy=False, costs=False),
    ScreenPlan(jobs=2, containers=0, wrong=0, gaps=0, verdicts=2, airy=False, costs=False),
    ScreenPlan(jobs=2, containers=0, wrong=0, gaps=0, verdicts=1, airy=False, costs=False),
)


@dataclass(frozen=True, slots=True)
class Screen:
    """The first screen of one machine."""

    summary: Summary
    timeline: Sequence[Moment]
    zone: tzinfo
    top: int | None = None

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The richest plan that fits, or as many rows as `--top` asks for."""
        if self.top is not None:
            yield self._planned(ScreenPlan(self.top, self.top, self.top, self.top, self.top))
            return
        # Leave the last line to the prompt.
        room = console.size.height - 1 if console.is_terminal else _LINES
        free = options.update(height=None)

        def fits(plan: ScreenPlan) -> bool:
            return len(console.render_lines(self._planned(plan), free, pad=False)) <= room

        # Each plan is shorter than the one before: bisection tries only a few.
        place = bisect_left(PLANS, True, hi=len(PLANS) - 1, key=fits)
        yield self._planned(PLANS[place])

    def _planned(self, plan: ScreenPlan) -> "RenderableType":
        summary = self.summary
        parts: list[RenderableType] = [header(summary.machine, summary.coverage, self.zone)]
        if end := end_sentence(summary):
            parts.append(Text(end))
        if not summary.coverage.samples:
            return Group(*parts)
        parts += [*plan.air, Busy(summary, self.timeline)]
        hidden: list[str] = []
        for title, columns, view, rows, most in self._lists(plan):
            if rows and most:
                table = Grid(columns_of(columns, self.zone), rows[:most])
                parts += [*plan.air, self._title(title, len(rows), most, view), table]
            elif rows:
                hidden.append(view)
        parts += self._advice(plan)
        if hidden:
            # In brackets, because the command takes one view at a time.
            parts.append(Text(f"More: {self._command('[' + ' | '.join(hidden) + ']')}", style="dim"))
        return Group(*parts)

    def _lists(self, plan: ScreenPlan) -> list[tuple[str, str, str, Sequence[object], int]]:
        """Title, columns, the view that shows all, rows, and how many of them."""
        summary = self.summary
        jobs = [job for job in summary.jobs if job.is_one_job]
        return [
            ("Top jobs", "jobs", "jobs", jobs, plan.jobs),
            ("Top containers", "containers", "containers", summary.containers, plan.containers),
            ("What went wrong", "events", "events", summary.wrong, plan.wrong),
            ("What was not seen", "gaps", "gaps", summary.gaps, plan.gaps),
        ]

    def _advice(self, plan: ScreenPlan) -> "list[RenderableType]":
        verdicts = self.summary.verdicts
        return [
            *plan.air,
            self._title("Advice", len(verdicts), plan.verdicts, "advice"),
            *(verdict_lines(verdict, brief=True) for verdict in verdicts[: plan.verdicts]),
            size_sentence(self.summary.advice[0]),
            *([energy_sentence(self.summary.energy)] if plan.costs else []),
        ]

    def _title(self, text: str, found: int, most: int, view: str) -> Text:
        more = f" ({most} of {found}; all: {self._command(view)})" if found > most else ""
        return Text.assemble((text, "bold underline"), (more, "dim"), no_wrap=True, overflow="ellipsis")

    def _command(self, view: str) -> str:
        path = shlex.quote(self.summary.machine.source)
        return f"vmsonar inspect {path if len(path) <= _LONGEST_PATH else 'PATH'} {view}"
