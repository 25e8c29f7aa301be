"""Tables that fit the width, every list view as one, and verdicts and sizes in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.text import Text
from vmsonar_archive.system.text import printable

from vmsonar_inspect.advice.figures import written
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.machine import RATES
from vmsonar_inspect.facts.model import Advice, Severity, Verdict
from vmsonar_inspect.facts.units import UNKNOWN
from vmsonar_inspect.show.columns import Column, columns_of, legend

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


_GAP = 2


class Grid:
    """Rows under their titles; what does not fit is left out by rank."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Any], legend: bool = False) -> None:
        self.columns = list(columns)
        written = [[printable(cell) for cell in column.cells(rows)] for column in columns]
        self.cells = [list(row) for row in zip(*written, strict=True)]
        self.legend = legend

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        places = self._fitting(options.max_width)
        yield self._line([self.columns[place].title for place, _ in places], places, "bold")
        for cells in self.cells:
            yield self._line([cells[place] for place, _ in places], places, "")
        shown = [cells[place] for cells in self.cells for place, _ in places] if self.legend else []
        if words := legend(shown):
            yield Text(f"\n{words}", style="dim")

    def shows(self, number: int, width: int) -> bool:
        """Whether a column fits, by its place; an empty one needs no room."""
        return not self._width(number) or any(place == number for place, _ in self._fitting(width))

    def _fitting(self, width: int) -> list[tuple[int, int]]:
        """The columns that fit, each with its width."""
        chosen: dict[int, int] = {}
        left = width + _GAP
        for place in sorted(range(len(self.columns)), key=lambda number: self.columns[number].rank):
            wanted, column = self._width(place), self.columns[place]
            space = min(wanted, left - _GAP)
            if wanted and space >= (wanted if column.right else min(wanted, column.least)):
                chosen[place] = space
                left -= space + _GAP
        return sorted(chosen.items())

    def _width(self, place: int) -> int:
        """The width a column wants; 0 when it is empty."""
        column = self.columns[place]
        nothing = {"", UNKNOWN} if column.optional else {""}
        if self.cells and all(row[place] in nothing for row in self.cells):
            return 0
        title, widest = cell_len(column.title), max((cell_len(row[place]) for row in self.cells), default=0)
        return min(widest, column.widest) if widest > title else title

    def _line(self, cells: list[str], places: list[tuple[int, int]], style: str) -> Text:
        parts = [
            _fit(cell, width, self.columns[place].right)
            for cell, (place, width) in zip(cells, places, strict=True)
        ]
        return Text((" " * _GAP).join(parts).rstrip(), style=style, no_wrap=True)


def _fit(cell: str, width: int, right: bool) -> str:
    length = cell_len(cell)
    if length > width:
        return set_cell_size(cell, max(0, width - 1)) + "…"
    return " " * (width - length) + cell if right else cell + " " * (width - length)


_MARKS = {Severity.PROBLEM: ("! ", "bold red"), Severity.ADVICE: ("• ", "yellow")}


def verdict_lines(verdict: Verdict, long: bool = False, brief: bool = False) -> "HangingText":
    """A verdict with its figures; the brief form leaves out what to do, the long form adds the conditions."""
    mark, style = _MARKS[verdict.severity]
    text = Text.assemble((verdict.name, "bold"), ": ", (verdict.title, style), f"; {verdict.says}.")
    text.append(f" {verdict.advice}" if verdict.advice and not brief else "")
    sure = "" if brief and verdict.confidence == "high" else f", {verdict.confidence} confidence"
    also = f", also {', '.join(verdict.also)}" if verdict.also else ""
    text.append(f" [{verdict.rule}{sure}{also}]", style="dim")
    if long:
        figures = ", ".join(
            f"{name} {written(name, value, verdict.marks)}" for name, value in verdict.figures.items()
        )
        text.append(f"\nwhen {'; '.join(verdict.conditions)}", style="dim")
        text.append(f"\nseen {figures}", style="dim")
    return HangingText(Text(mark, style=style), text)


@dataclass(frozen=True, slots=True)
class HangingText:
    """A paragraph with a hanging mark."""

    mark: Text
    text: Text

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        lines = self.text.wrap(console, options.max_width - len(self.mark))
        for number, line in enumerate(lines):
            line.rstrip()
            yield Text.assemble(self.mark if number == 0 else " " * len(self.mark), line)


def size_sentence(advice: Advice) -> Text:
    """What would have held it, and whether more would have helped."""
    said = advice.conclusion or ""
    return Text.assemble(("Size: ", "bold"), said) if advice.enough_data else Text(said, style="dim")


_NOTHING = {
    "jobs": "No jobs were recorded.",
    "containers": "No containers were recorded.",
    "gpus": "No GPUs were recorded.",
    "shares": "No network file systems were recorded.",
    "units": "No services, batch jobs or other units were recorded: cgroups.kinds chooses them.",
    "links": "No interfaces that lead out of the machine were recorded.",
    "users": "No users were recorded.",
    "sessions": "No sessions were recorded.",
    "programs": "No programs were recorded.",
    "timeline": "No samples were recorded.",
    "events": "Nothing happened that is worth a line.",
    "gaps": "Nothing is missing: every sample was taken and everything could be read.",
    "advice": "Nothing was recorded that could be judged.",
}


def list_view(view: str, rows: Sequence[Any], zone: tzinfo, many: bool) -> "RenderableType":
    """The rows of a view, or a sentence that there are none."""
    if not rows:
        return Text(_NOTHING[view])
    if view == "advice":
        return _advice_view(rows)
    columns = columns_of(view, zone, many) + (columns_of("hours", zone) if view == "programs" else [])
    return Grid(columns, rows, legend=True)


def _advice_view(advices: Sequence[Advice]) -> "RenderableType":
    """The machine, then each job with a verdict, with all figures."""
    parts: list[RenderableType] = []
    quiet = [advice for advice in advices if advice.about == "job" and not advice.verdicts]
    for advice in advices:
        if advice.about != "job" or advice.verdicts:
            parts += [Text(advice.name, style="bold underline"), used(advice)]
            parts += [verdict_lines(verdict, long=True) for verdict in advice.verdicts]
            parts += [size_sentence(advice), Text()]
    if fine := sum(advice.enough_data for advice in quiet):
        parts.append(Text(f"Nothing to say against {units.plural(fine, 'job')}.", style="dim"))
    if thin := sum(not advice.enough_data for advice in quiet):
        parts.append(Text(f"Too little was recorded of {units.plural(thin, 'job')} to judge.", style="dim"))
    return Group(*parts)


USE_TITLES = ("", "median", "p95", "peak", "of")
_USED = [
    Column("", place, title, itemgetter(place), right=title not in ("", "of"))
    for place, title in enumerate(USE_TITLES)
]
#: What each use of an advice is compared with.
_OF = {
    "cores": "cpus",
    "memory_bytes": "memory_total_bytes",
    "gpu_util": "gpus",
    "gpu_memory_bytes": "gpu_memory_total_bytes",
    **dict.fromkeys(RATES),
}


def used(advice: Advice) -> Grid:
    """Each resource with its use and what there was of it."""
    rows = [
        use_row(advice, name, _whole(advice, of))
        for name, of in _OF.items()
        if getattr(advice, name).peak is not None
    ]
    return Grid(_USED, rows)


def _whole(advice: Advice, of: str | None) -> str:
    if of == "gpus":
        return units.plural(advice.gpus, "GPU") if advice.gpus else ""
    return "" if of is None else shown_field(Advice, of).write(getattr(advice, of))


def use_row(of: msgspec.Struct, name: str, whole: str) -> tuple[str, ...]:
    """The median, 95th percentile and peak of a use, by the title and unit of its field."""
    parts = (shown_field(type(of), f"{name}.{part}").marked(of) for part in ("median", "p95", "peak"))
    return shown_field(type(of), name).title, *parts, whole
