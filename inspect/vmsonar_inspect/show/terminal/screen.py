"""The first screen: the machine, the answer, how busy it was, and as much of everything else as fits."""

import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text
from vmsonar_archive.system.moments import in_zone
from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.machine import RATES
from vmsonar_inspect.facts.model import Coverage, EnergyUse, Happening, Machine, Moment
from vmsonar_inspect.show.answers import Summary
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.terminal.lists import (
    USE_TITLES,
    Grid,
    HangingText,
    size_sentence,
    use_row,
    verdict_lines,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


def header(machine: Machine, coverage: Coverage, zone: tzinfo) -> "RenderableType":
    """What the machine is and what was covered."""
    first = Text(plain(machine.hostname or machine.archive), style="bold", no_wrap=True, overflow="ellipsis")
    for part in _hardware(machine):
        first.append(f"  {part}", style="")
    return Group(first, Text(covered(coverage, zone)))


def _system(machine: Machine) -> Text:
    parts = (machine.os_name, machine.kernel_release, machine.cpu_model)
    words = " · ".join(plain(part) for part in parts if part)
    return Text(words, style="dim", no_wrap=True, overflow="ellipsis")


def _hardware(machine: Machine) -> list[str]:
    place = " ".join(plain(part) for part in (machine.cloud_provider, machine.instance_type) if part)
    cards = f"{machine.gpus} {plain(', '.join(machine.gpu_models) or 'GPU')}" if machine.gpus else ""
    size = f"{units.plural(machine.cpus, 'core')}, {units.size(machine.memory_bytes)}"
    return [part for part in (place, size if machine.cpus else "", cards) if part]


#: Times of less than two minutes have seconds.
_SHORT = 120


def covered(coverage: Coverage, zone: tzinfo) -> str:
    """The time and how complete it is, in a sentence."""
    if coverage.first is None or coverage.last is None:
        return "The archive holds no samples."
    first, last = in_zone(coverage.first, zone), in_zone(coverage.last, zone)
    if coverage.samples == 1:
        return f"One sample, at {first:%Y-%m-%d %H:%M:%S %Z}: rates need two."
    is_short = (coverage.span_seconds or 0) < _SHORT
    clock = "%H:%M:%S" if is_short else "%H:%M"
    end = format(last, clock if first.date() == last.date() else f"%Y-%m-%d {clock}")
    # The seconds of a clock say how long it was, and on 80 columns the line must not wrap.
    span = "" if is_short else f" ({units.duration(coverage.span_seconds)})"
    text = f"{first:%Y-%m-%d} {first:{clock}} to {end} {last:%Z}{span}, "
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


def answer(summary: Summary, zone: tzinfo) -> "list[RenderableType]":
    """Busy or not and who, what size, what went wrong, and the two verdicts that matter most."""
    return [
        HangingText(Text(), busy_sentence(summary)),
        HangingText(Text(), size_sentence(summary.advice[0])),
        HangingText(Text(), _wrong(summary, zone)),
        *(verdict_lines(verdict, brief=True) for verdict in summary.verdicts[:_VERDICTS]),
    ]


#: Rules about what no single event tells.
_FAILURES = ("crash_loop", "disk_filled", "inodes_filled")
#: Verdicts of the answer; more of them follow where there is room.
_VERDICTS = 2
_NAMED = 3


def busy_sentence(summary: Summary) -> Text:
    """`Busy: 75 % of 8 cores on average, 93 % at the peak; memory … CPU time: anna 60 %, bert 30 %.`"""
    use, machine = summary.use, summary.machine
    shares = [ratio(use.cores.mean, use.cpus), ratio(use.gpu_util.mean, 100)]
    most = max((share for share in shares if share is not None), default=None)
    word = "Busy" if most is None else next(word for limit, word in _WORDS if most >= limit)
    peak = ratio(use.cores.peak, use.cpus)
    told = f"{units.share(shares[0])} of {units.plural(use.cpus, 'core')} on average, {units.share(peak)} at the peak"
    told += f"; memory up to {units.size(use.memory_bytes.peak)} of {units.size(use.memory_total_bytes)}"
    if machine.gpus or use.gpu_util.peak is not None:
        told += f"; {units.plural(machine.gpus or 1, 'GPU')} {units.percent(use.gpu_util.mean)}"
    return Text.assemble((f"{word}: ", "bold"), f"{told}.{_who(summary)}")


#: How a machine is called whose cores or GPUs were used to at least this share.
_WORDS = ((0.9, "Saturated"), (0.5, "Busy"), (0.1, "Partly busy"), (0.0, "Mostly idle"))


def _who(summary: Summary) -> str:
    """Whose the machine's CPU time was, and how much of it is in no job that is shown."""
    used: dict[str, float] = defaultdict(float)
    for job in summary.jobs:
        used[plain(job.user)] += job.cpu_seconds or 0.0
    jobs = sum(used.values())
    total = max(jobs, summary.use.cpu_seconds or 0.0)
    named = [
        (user, seconds)
        for user, seconds in sorted(used.items(), key=lambda each: -each[1])[:_NAMED]
        if seconds >= 0.05 * total > 0
    ]
    told = [f"{user} {units.share(seconds / total)}" for user, seconds in named]
    is_idle = (ratio(summary.use.cores.mean, summary.use.cpus) or 0.0) < _WORDS[-2][0]
    if not is_idle and total - jobs >= _NOBODYS * total > 0:
        told.append(f"others {units.share(1 - jobs / total)}")
    return f" CPU time: {', '.join(told)}." if told else ""


#: The kernel's own work, and what is lost between samples, is less than this share.
_NOBODYS = 0.25


def _wrong(summary: Summary, zone: tzinfo) -> Text:
    """What went wrong, work that failed before what merely happened to the machine."""
    events = sorted(summary.wrong, key=lambda event: event.kind in ("machine", "recorder"))
    # One of each subject: a container that was killed also ended.
    subjects = {event.subject: event for event in reversed(events)}
    # Short attempts that fail are no event each; a row of them, and a full disk, are.
    told = [f"{each.name} {each.says}" for each in summary.verdicts if each.rule in _FAILURES]
    every = len(told) + len(subjects)
    first = [event for event in events if subjects[event.subject] is event]
    # Of several full disks one, so that an event has room beside it.
    told = told[: _VERDICTS - bool(first)]
    told += [
        f"{units.clock(event.time, zone)[11:16]} {_happened(event)}"
        for event in first[: _VERDICTS - len(told)]
    ]
    more = f"; and {every - len(told)} more" if every > len(told) else ""
    told = [*(["some of the record cannot be read"] if summary.coverage.damaged else []), *told]
    text = Text.assemble(
        ("Went wrong: ", "bold"), (f"{'; '.join(told) or 'nothing failed'}{more}.", "red" if told else "")
    )
    end = end_sentence(summary)
    return text.append(f" {end}" if end else "")


def _happened(event: Happening) -> str:
    """`cc1 (job 4711): SIGSEGV`, `container worker-3: out of memory`."""
    subject, program = (plain(part) if part else "" for part in (event.subject, event.program))
    who = f"{program} ({subject})" if program and subject else subject or program
    return f"{who}: {plain(event.what or event.event)}" if who else plain(event.what or event.event)


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy each resource was, with its course over time in the space that is left."""

    summary: Summary
    timeline: Sequence[Moment]
    rates: int

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
            ("cores", units.plural(use.cpus, "core"), use.cpus),
            ("memory_bytes", units.size(use.memory_total_bytes), use.memory_total_bytes),
            *([("gpu_util", units.plural(machine.gpus or 1, "GPU"), 100.0)] if has_gpus else []),
            *((name, "", None) for name in used_rates(self.summary)[: self.rates]),
        ]


def used_rates(summary: Summary) -> list[str]:
    """Disk and network, where they were used."""
    return [name for name in RATES if getattr(summary.use, name).peak]


def energy_sentence(energy: EnergyUse) -> Text:
    """Energy and emissions in one line."""
    mark = "~" if energy.source == "estimate" else ""
    idle = units.energy(energy.idle_joules, like=energy.joules)
    text = Text(
        f"Energy: {mark}{units.energy(energy.joules)} ({idle} idle), {mark}{units.grams(energy.grams_co2e)} CO2e "
    )
    factor = " ".join(part for part in (energy.factor_country, energy.factor_year) if part)
    return text.append(f"({energy.source}, {factor}, PUE {energy.pue:g})", style="dim")


#: Lines of the first screen when it goes to a pipe.
_LINES = 40
_LONGEST_PATH = 28
#: Who gets lines, in turn: each section up to that many rows, as long as there are lines.
_TURNS = (
    ("jobs", 3), ("rates", 2), ("containers", 2), ("jobs", 5), ("wrong", 2), ("energy", 1), ("verdicts", 1),
    ("gaps", 1), ("rates", 4), ("jobs", 10), ("verdicts", 4), ("containers", 5), ("wrong", 5), ("gaps", 3),
    ("jobs", 10_000), ("containers", 10_000), ("wrong", 10_000), ("gaps", 10_000),
)  # fmt: skip
#: From this many lines on sections stand apart.
_AIRY = 32


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the first screen: how many lines its heading and each of its rows take."""

    heading: int
    costs: Sequence[int]
    draw: "Callable[[int], list[RenderableType]]"

    def lines(self, rows: int) -> int:
        return sum(self.costs[:rows]) + (self.heading if rows else 0)


@dataclass(frozen=True, slots=True)
class Screen:
    """The first screen of one machine."""

    summary: Summary
    timeline: Sequence[Moment]
    zone: tzinfo
    top: int | None = None

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """As many rows of each section as there are lines for, or as `--top` asks for."""
        # Leave the last line to the prompt.
        room = console.size.height - 1 if console.is_terminal else _LINES
        free = options.update(height=None)
        air = [Text()] if room >= _AIRY else []

        def lines(parts: "list[RenderableType]") -> int:
            return len(console.render_lines(Group(*parts), free, pad=False))

        head: list[RenderableType] = [header(self.summary.machine, self.summary.coverage, self.zone)]
        if not self.summary.coverage.samples:
            yield Group(*head)
            return
        head += [*answer(self.summary, self.zone), *air]
        sections = self._sections(lines, air)
        if self.top is not None:
            given = {name: min(self.top, len(section.costs)) for name, section in sections.items()}
            given["rates"] = len(RATES)
        else:
            # One line is for what does not fit, and the use of CPU, memory and GPUs is always shown.
            left = room - lines([*head, Busy(self.summary, self.timeline, 0)]) - 1
            given = _shared(sections, left)
        yield Group(
            *head, *(part for name, section in sections.items() for part in section.draw(given[name]))
        )
        hidden = [
            name if name != "wrong" else "events"
            for name in _LISTS
            if sections[name].costs and not given[name]
        ]
        if hidden:
            # In brackets, because the command takes one view at a time.
            yield Text(f"More: {self._command('[' + ' | '.join(hidden) + ']')}", style="dim")

    def _sections(
        self, lines: "Callable[[list[RenderableType]], int]", air: list[Text]
    ) -> dict[str, Section]:
        summary = self.summary
        verdicts = summary.verdicts[_VERDICTS:]
        told: list[RenderableType] = [verdict_lines(verdict, brief=True) for verdict in verdicts]
        last: list[RenderableType] = [*air, energy_sentence(summary.energy), _system(summary.machine)]
        found = {
            "rates": Section(
                0, [1] * len(used_rates(summary)), lambda rows: [Busy(summary, self.timeline, rows)]
            )
        }
        for name, (title, view) in _LISTS.items():
            found[name] = self._list(title, view, self._rows(name), air)

        def draw(rows: int) -> "list[RenderableType]":
            title = self._title("More advice", len(verdicts), rows, "advice")
            return [*air, title, *told[:rows]] if rows else []

        found["verdicts"] = Section(len(air) + 1, [lines([one]) for one in told[:20]], draw)
        found["energy"] = Section(0, [lines(last)], lambda rows: last if rows else [])
        return found

    def _list(self, title: str, view: str, rows: Sequence[object], air: list[Text]) -> Section:
        def draw(most: int) -> "list[RenderableType]":
            table = Grid(columns_of(view, self.zone), rows[:most])
            return [*air, self._title(title, len(rows), most, view), table] if most else []

        return Section(len(air) + 2, [1] * len(rows), draw)

    def _rows(self, name: str) -> Sequence[object]:
        rows: Sequence[object] = getattr(self.summary, name)
        return [job for job in self.summary.jobs if job.is_one_job] if name == "jobs" else rows

    def _title(self, text: str, found: int, most: int, view: str) -> Text:
        more = f" ({most} of {found}; all: {self._command(view)})" if found > most else ""
        return Text.assemble((text, "bold underline"), (more, "dim"), no_wrap=True, overflow="ellipsis")

    def _command(self, view: str) -> str:
        path = shlex.quote(self.summary.machine.source)
        return f"vmsonar inspect {path if len(path) <= _LONGEST_PATH else 'PATH'} {view}"


#: The lists of a summary, each with its title and the view that has all of it.
_LISTS = {
    "jobs": ("Top jobs", "jobs"),
    "containers": ("Top containers", "containers"),
    "wrong": ("What went wrong", "events"),
    "gaps": ("What was not seen", "gaps"),
}


def _shared(sections: dict[str, Section], left: int) -> dict[str, int]:
    """How many rows each section gets of so many lines."""
    given = dict.fromkeys(sections, 0)
    for name, most in _TURNS:
        section = sections[name]
        while given[name] < min(most, len(section.costs)):
            cost = section.lines(given[name] + 1) - section.lines(given[name])
            if cost > left:
                break
            given[name] += 1
            left -= cost
    return given
