"""Every list view as a table, with verdicts and sizes in words."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group
from rich.text import Text

from vmsonar_inspect.advice.figures import written
from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import Advice, Severity, Verdict
from vmsonar_inspect.show.columns import Column, columns_of, size_words
from vmsonar_inspect.show.terminal.grid import Grid

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


_MARKS = {Severity.PROBLEM: ("! ", "bold red"), Severity.ADVICE: ("• ", "yellow")}


def verdict_lines(verdict: Verdict, long: bool = False, brief: bool = False) -> "HangingText":
    """A verdict with its figures; the brief form leaves out what to do, the long form adds the conditions."""
    mark, style = _MARKS[verdict.severity]
    text = Text.assemble((verdict.name, "bold"), ": ", (verdict.title, style), f"; {verdict.says}.")
    text.append(f" {verdict.advice}" if verdict.advice and not brief else "")
    text.append(f" [{verdict.rule}, {verdict.confidence} confidence]", style="dim")
    if long:
        figures = ", ".join(f"{name} {written(name, value)}" for name, value in verdict.figures.items())
        text.append(f"\nwhen {'; '.join(verdict.conditions)}", style="dim")
        text.append(f"\nseen {figures}", style="dim")
    return HangingText(Text(mark, style=style), text)


class HangingText:
    """A paragraph with a hanging mark."""

    def __init__(self, mark: Text, text: Text) -> None:
        self.mark = mark
        self.text = text

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        lines = self.text.wrap(console, options.max_width - len(self.mark))
        for number, line in enumerate(lines):
            line.rstrip()
            yield Text.assemble(self.mark if number == 0 else " " * len(self.mark), line)


def size_sentence(advice: Advice) -> Text:
    """What would have held it, and whether more would have helped."""
    if not advice.enough_data:
        return Text("Too little was recorded to advise a size.", style="dim")
    text = Text.assemble(("Size: ", "bold"))
    if advice.size_p95 is not None and advice.size_p95 == advice.size_peak:
        text.append(f"{size_words(advice.size_p95)} would have held the 95th percentile and the peak. ")
    elif advice.size_p95 is not None and advice.size_peak is not None:
        text.append(f"{size_words(advice.size_p95)} would have held the 95th percentile, ")
        text.append(f"{size_words(advice.size_peak)} the peak. ")
    helped = "would have helped" if advice.larger_would_help else "would not have helped"
    return text.append(f"A larger machine {helped}: {advice.larger_why}.")


_NOTHING = {
    "jobs": "No jobs were recorded.",
    "containers": "No containers were recorded.",
    "gpus": "No GPUs were recorded.",
    "users": "No users were recorded.",
    "programs": "No programs were recorded.",
    "timeline": "No samples were recorded.",
    "gaps": "Nothing is missing: every sample was taken and everything could be read.",
    "advice": "Nothing was recorded that could be judged.",
}


def list_view(view: str, rows: Sequence[Any], zone: tzinfo, many: bool) -> "RenderableType":
    """The rows of a view, or a sentence that there are none."""
    if not rows:
        return Text(_NOTHING[view])
    if view == "advice":
        return advice_view(rows)
    columns = columns_of(view, zone, many) + (columns_of("hours", zone) if view == "programs" else [])
    return Grid(columns, rows, legend=True)


def advice_view(advices: Sequence[Advice]) -> "RenderableType":
    """The machine, then each job with a verdict, with all figures."""
    parts: list[RenderableType] = []
    quiet = thin = 0
    for advice in advices:
        if advice.about == "job" and not advice.verdicts:
            quiet, thin = quiet + advice.enough_data, thin + (not advice.enough_data)
            continue
        parts += [*_advice(advice), Text()]
    if quiet:
        parts.append(Text(f"Nothing to say against {units.plural(quiet, 'job')}.", style="dim"))
    if thin:
        parts.append(Text(f"Too little was recorded of {units.plural(thin, 'job')} to judge.", style="dim"))
    return Group(*parts)


def _advice(advice: Advice) -> "list[RenderableType]":
    return [
        Text(advice.name, style="bold underline"),
        Grid(USED, used(advice)),
        *(verdict_lines(verdict, long=True) for verdict in advice.verdicts),
        size_sentence(advice),
    ]


USED = [
    Column("", lambda row: row[0], 0, right=False),
    Column("median", lambda row: row[1], 1),
    Column("95 %", lambda row: row[2], 2),
    Column("peak", lambda row: row[3], 3),
    Column("of", lambda row: row[4], 4, right=False),
]


#: What each use of an advice is compared with.
_OF = {
    "cores": "cpus",
    "memory_bytes": "memory_total_bytes",
    "gpu_util": "gpus",
    "gpu_memory_bytes": "gpu_memory_total_bytes",
    "disk_read_rate": None,
    "disk_write_rate": None,
    "received_rate": None,
    "sent_rate": None,
}


def used(advice: Advice) -> list[tuple[str, str, str, str, str]]:
    """The rows of USED: each resource with its use and what there was of it."""
    return [
        use_row(advice, name, _whole(advice, of))
        for name, of in _OF.items()
        if getattr(advice, name).peak is not None
    ]


def _whole(advice: Advice, of: str | None) -> str:
    if of is None:
        return ""
    if of == "gpus":
        return units.plural(advice.gpus, "GPU") if advice.gpus else ""
    return shown_field(Advice, of).write(getattr(advice, of))


def use_row(of: msgspec.Struct, name: str, whole: str) -> tuple[str, str, str, str, str]:
    """The median, 95th percentile and peak of a use, by the title and unit of its field."""
    field, use = shown_field(type(of), name), getattr(of, name)
    return field.title, field.write(use.median), field.write(use.p95), field.write(use.peak), whole
