"""The story of one job on a screen."""

from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from vmsonar_inspect import units
from vmsonar_inspect.render.columns import Column, bound, clock, container_columns, event_columns, gpu_columns
from vmsonar_inspect.render.columns import energy as written_energy
from vmsonar_inspect.render.grid import Grid
from vmsonar_inspect.render.lists import USED, used
from vmsonar_inspect.render.verdicts import size_sentence, verdict_lines
from vmsonar_inspect.spark import sparkline
from vmsonar_inspect.stories import Story
from vmsonar_inspect.text import plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


def story_view(story: Story, zone: tzinfo) -> "RenderableType":
    """One job from beginning to end."""
    parts: list[RenderableType] = [*_head(story, zone), Text(), Grid(USED, used(story.advice)), Text()]
    parts.append(Course(story, zone))
    if story.processes:
        parts += [_title(f"Processes ({len(story.processes)})"), Grid(_PROCESSES, story.processes)]
    if story.container is not None:
        parts += [_title("Container"), Grid(container_columns(zone, False), [story.container])]
    if story.gpus:
        parts += [_title("GPUs"), Grid(gpu_columns(False), story.gpus)]
    if story.events:
        parts += [_title("What happened"), Grid(event_columns(zone), story.events)]
    parts.append(_title("Advice"))
    parts += [verdict_lines(verdict) for verdict in story.advice.verdicts]
    parts.append(size_sentence(story.advice))
    return Group(*parts)


def _title(text: str) -> Text:
    return Text.assemble("\n", (text, "bold underline"))


def _head(story: Story, zone: tzinfo) -> list[Text]:
    job = story.job
    write = clock(zone)
    lower = bound(units.hours(job.cpu_seconds), job.cpu_is_lower_bound)
    moved = bound(
        f"{units.size(job.read_bytes)} read, {units.size(job.write_bytes)} written", job.io_is_lower_bound
    )
    when = f"{write(job.started or job.first)} to {write(job.last)} ({units.duration(job.runtime_seconds)})"
    cost = f"CPU time {lower}, {moved}, energy {written_energy(job.energy)}"
    return [
        Text.assemble((f"job {plain(job.job)}", "bold"), f"  {plain(job.command)}"),
        Text(f"{plain(job.user)} on {plain(job.hostname)}, {plain(job.program)}", style="dim"),
        Text(f"{when}, {story.ended_by}"),
        Text(f"{cost}, seen in {units.count(job.samples)} samples"),
    ]


class Course:
    """The job over time, a line per resource."""

    def __init__(self, story: Story, zone: tzinfo) -> None:
        self.story = story

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        rows = [row for row in self._rows() if any(value is not None for value in row[1])]
        for name, values, top, write in rows:
            known = [value for value in values if value is not None]
            peak = write(max(known))
            line = Text(f"{name:<16}{peak:>12}  ", no_wrap=True)
            yield line.append(sparkline(values, top, max(8, options.max_width - 30)), style="cyan")

    def _rows(self) -> list[tuple[str, list[float | None], float | None, Any]]:
        moments, about = self.story.timeline, self.story.advice
        return [
            ("cores", [at.cores for at in moments], about.cpus, units.cores),
            ("memory", [at.memory_bytes for at in moments], None, units.size),
            ("read", [at.read_rate for at in moments], None, units.rate),
            ("written", [at.write_rate for at in moments], None, units.rate),
            ("GPU", [at.gpu_util for at in moments], 100, units.percent),
            ("waited for CPU", [at.pressure_cpu for at in moments], 1, units.share),
            ("for memory", [at.pressure_memory for at in moments], 1, units.share),
            ("for the disk", [at.pressure_io for at in moments], 1, units.share),
        ]


_PROCESSES = [
    Column("pid", lambda row: str(row.pid), 0),
    Column("CPU time", lambda row: units.hours(row.cpu_seconds), 1),
    Column("memory peak", lambda row: units.size(row.memory_peak_bytes), 2),
    Column("read", lambda row: units.size(row.read_bytes), 4),
    Column("written", lambda row: units.size(row.write_bytes), 5),
    Column("samples", lambda row: units.count(row.samples), 6),
    Column("command", lambda row: plain(row.command), 3, right=False, least=12),
]
