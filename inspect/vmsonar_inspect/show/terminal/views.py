"""Renders each view, and the story of one job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from rich.console import Group
from rich.rule import Rule
from rich.text import Text
from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.model import JobUse, Story, StoryMoment
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import fleet_rows, rows_of, summary_of
from vmsonar_inspect.show.columns import columns_of
from vmsonar_inspect.show.doubts import doubts_of
from vmsonar_inspect.show.order import arranged
from vmsonar_inspect.show.terminal.lists import Grid, list_view, size_sentence, used, verdict_lines
from vmsonar_inspect.show.terminal.screen import Screen, header

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


def story_view(story: Story, zone: tzinfo) -> "RenderableType":
    """One job from beginning to end."""
    parts: list[RenderableType] = [*_head(story, zone), Text(), used(story.advice), Text(), Course(story)]
    found, listed = sum(program.processes for program in story.programs), len(story.processes)
    shown = f"{listed} busiest of {units.count(found)}" if found > listed else f"{listed}"
    if unseen := story.job.processes_unseen:
        shown += f"; {units.count(unseen)} more ended before a sample could show them"
    container = [story.container] if story.container is not None else []
    tables: list[tuple[str, str, Sequence[object]]] = [
        (
            f"On {len(story.nodes)} machines",
            "story nodes",
            [*story.nodes, *([story.whole] if story.whole else [])],
        ),
        ("Steps", "story steps", story.job.steps),
        *_tasks(story.whole or story.job),
        ("Programs", "story programs", story.programs),
        (f"Processes ({shown})", "processes", story.processes),
        ("Container", "containers", container),
        ("GPUs", "gpus", story.gpus),
        ("What happened", "events", story.events),
    ]
    for title, view, rows in tables:
        if rows:
            parts += [_title(title), Grid(columns_of(view, zone), rows)]
    parts.append(_title("Advice"))
    parts += [verdict_lines(verdict) for verdict in story.advice.verdicts]
    parts.append(size_sentence(story.advice))
    return Group(*parts)


#: Tasks of a step that are shown.
_TASKS = 32


def _tasks(job: JobUse) -> list[tuple[str, str, Sequence[object]]]:
    """The tasks of each step that has several, side by side from all nodes; of many those that did least."""
    found: list[tuple[str, str, Sequence[object]]] = []
    for step in (step for step in job.steps if len(step.tasks) > 1):
        tasks, title = step.tasks, f"Tasks of step {plain(step.step)}"
        if len(tasks) > _TASKS:
            title += f" (the {_TASKS} least busy of {units.count(len(tasks))})"
            tasks = sorted(tasks, key=lambda task: task.cpu_seconds or 0.0)[:_TASKS]
        found.append((title, "story tasks", tasks))
    return found


def _title(text: str) -> Text:
    return Text.assemble("\n", (text, "bold underline"))


def _head(story: Story, zone: tzinfo) -> list[Text]:
    job = story.job
    names = ("cpu_seconds", "read_bytes", "write_bytes", "runtime_seconds")
    cpu, read, wrote, runtime = (shown_field(JobUse, name).marked(job) for name in names)
    first, last = units.clock(job.started or job.first, zone), units.clock(job.end or job.last, zone)
    when = f"{first} to {last} ({runtime})"
    energy = units.energy(job.energy.joules, job.energy.source)
    cost = f"CPU time {cpu}, {read} read, {wrote} written, energy {energy}"
    return [
        Text.assemble((f"job {plain(job.job)}", "bold"), f"  {plain(job.label)}"),
        Text(f"{plain(job.user)} on {plain(job.hostname)}, started as {plain(job.command)}", style="dim"),
        Text(when),
        Text.assemble(("End: ", "bold"), plain(story.ended_by)),
        *_ulimits(job),
        *_granted(job),
        Text(f"{cost}, seen in {units.plural(job.samples, 'sample')}"),
        *(Text(words, style="dim") for words in doubts_of(job)),
    ]


def _granted(job: JobUse) -> list[Text]:
    """What Slurm was asked for and gave, where it told."""
    told = []
    for said, when in (("asked for", "requested"), ("given", "allocated")):
        amounts = [
            units.cores(getattr(job, f"{when}_cpus")) + " cores",
            units.size(getattr(job, f"{when}_memory_bytes")),
            units.plural(getattr(job, f"{when}_gpus"), "GPU"),
        ]
        known = [amount for amount in amounts if not amount.startswith(units.UNKNOWN)]
        told += [f"{said} {', '.join(known)}"] if known else []
    if job.time_limit_seconds is not None:
        told.append(f"time limit {units.duration(job.time_limit_seconds)}")
    task = f"task {job.array_task}: " if job.array_task else ""
    task += f"on {job.nodes} nodes: " if (job.nodes or 1) > 1 else ""
    return [Text(f"Slurm: {task}{'; '.join(told)}", style="dim")] if told else []


def _ulimits(job: JobUse) -> list[Text]:
    """What its user may have at most, where that could be read."""
    files, processes = job.open_files_ulimit, job.processes_ulimit
    told = {"open files in a process": files, "processes of its user": processes}
    words = ", ".join(f"{units.count(most)} {what}" for what, most in told.items() if most is not None)
    return [Text(f"At most {words} (ulimit)", style="dim")] if words else []


#: What a job's course shows, with the top of each line; without one it is the peak.
_COURSE: dict[str, float | None] = {
    "cores": None,
    "memory_bytes": None,
    "read_rate": None,
    "write_rate": None,
    "gpu_util": 100,
    "pressure_cpu": 1,
    "pressure_memory": 1,
    "pressure_io": 1,
}


@dataclass(frozen=True, slots=True)
class Course:
    """The job over time, a line per resource."""

    story: Story

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        tops = {**_COURSE, "cores": self.story.advice.cpus}
        for name, top in tops.items():
            values = [getattr(moment, name) for moment in self.story.timeline]
            known = [value for value in values if value is not None]
            if known:
                field = shown_field(StoryMoment, name)
                line = Text(f"{field.title:<26}{field.write(max(known)):>11}  ", no_wrap=True)
                yield line.append(units.sparkline(values, top, max(8, options.max_width - 39)), style="cyan")


_SPARKS = 160


def render_view(
    inspection: Inspection,
    view: str,
    zone: tzinfo,
    sort: str | None = None,
    top: int | None = None,
    job: str | None = None,
) -> "RenderableType":
    many = len(inspection.sources) > 1
    if view == "summary" and many:
        return _fleet(inspection, zone, top)
    archive = next(iter(inspection.sources))
    if view == "summary":
        return Screen(summary_of(inspection, archive), inspection.timeline(archive, _SPARKS), zone, top)
    shown = list_view(view, arranged(rows_of(inspection, view, zone, job), sort, top), zone, many)
    if many:
        return shown
    return Group(header(inspection.machines[archive], inspection.coverage[archive], zone), Text(), shown)


def render_job(inspection: Inspection, wanted: str, zone: tzinfo) -> "RenderableType":
    """The story of a job, or of each that has the id."""
    parts: list[RenderableType] = []
    for number, key in enumerate(inspection.find_jobs(wanted)):
        parts += [Text(), Rule(style="dim"), Text()] if number else []
        parts.append(story_view(inspection.story(key, _SPARKS), zone))
    return Group(*parts)


def _fleet(inspection: Inspection, zone: tzinfo, top: int | None) -> "RenderableType":
    rows = fleet_rows(inspection)
    parts: list[RenderableType] = [Grid(columns_of("machines", zone), rows[:top])]
    if hidden := len(rows) - len(rows[:top]):
        parts.append(Text(f"and {hidden} more", style="dim"))
    damaged = [gap for _, gap in inspection.gaps if gap.kind == "damage"]
    if damaged:
        parts += [_title("What could not be read"), Grid(columns_of("gaps", zone), damaged)]
    return Group(*parts)
