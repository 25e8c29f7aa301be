"""Verdicts and sizes in words."""

from typing import TYPE_CHECKING

from rich.text import Text

from vmsonar_inspect.figures import written
from vmsonar_inspect.model_advice import Advice, Severity, Size, Verdict

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_MARKS = {Severity.PROBLEM: ("! ", "bold red"), Severity.ADVICE: ("• ", "yellow")}


def verdict_lines(verdict: Verdict, long: bool = False, brief: bool = False) -> "Hanging":
    """A verdict with its figures; the brief form leaves out what to do, the long form adds the conditions."""
    mark, style = _MARKS[verdict.severity]
    text = Text.assemble((verdict.name, "bold"), ": ", (verdict.title, style), f"; {verdict.says}.")
    text.append(f" {verdict.advice}" if verdict.advice and not brief else "")
    text.append(f" [{verdict.rule}, {verdict.confidence} confidence]", style="dim")
    if long:
        figures = ", ".join(f"{name} {written(name, value)}" for name, value in verdict.figures.items())
        text.append(f"\nwhen {'; '.join(verdict.conditions)}", style="dim")
        text.append(f"\nseen {figures}", style="dim")
    return Hanging(Text(mark, style=style), text)


class Hanging:
    """A paragraph whose mark hangs before it."""

    def __init__(self, mark: Text, text: Text) -> None:
        self.mark = mark
        self.text = text

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        lines = self.text.wrap(console, options.max_width - len(self.mark))
        for number, line in enumerate(lines):
            line.rstrip()
            yield Text.assemble(self.mark if number == 0 else " " * len(self.mark), line)


def size_words(size: Size) -> str:
    """`2 cores, 8 GiB, 1 GPU`."""
    parts = [
        _count(size.cores, "core") if size.cores is not None else "",
        f"{size.memory_gib} GiB" if size.memory_gib is not None else "",
        _count(size.gpus, "GPU") if size.gpus is not None else "",
    ]
    named = f" ({size.flavour})" if size.flavour else ""
    return ", ".join(part for part in parts if part) + named


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
