"""Which renderable answers which question."""

from datetime import tzinfo
from typing import TYPE_CHECKING

from rich.console import Group
from rich.rule import Rule
from rich.text import Text

from vmsonar_inspect.answers import arranged, fleet_rows, rows_of, summary_of
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.render.columns import gap_columns
from vmsonar_inspect.render.grid import Grid
from vmsonar_inspect.render.lists import fleet_view, list_view
from vmsonar_inspect.render.screen import Screen
from vmsonar_inspect.render.story import story_view
from vmsonar_inspect.render.summary import Overview, header
from vmsonar_inspect.stories import find_jobs, tell

if TYPE_CHECKING:
    from rich.console import RenderableType

_SPARKS = 160


def present(
    inspection: Inspection, view: str, zone: tzinfo, sort: str | None = None, top: int | None = None
) -> "RenderableType":
    """A view for people."""
    if view == "summary":
        return (
            _summary(inspection, zone, top) if len(inspection.sources) == 1 else _fleet(inspection, zone, top)
        )
    many = len(inspection.sources) > 1
    rows = arranged(rows_of(inspection, view, zone), sort, top)
    head = [] if many else [_header(inspection, zone), Text()]
    return Group(*head, list_view(view, rows, zone, many))


def present_job(inspection: Inspection, wanted: str, zone: tzinfo) -> "RenderableType":
    """The story of a job, or of each that has the id."""
    parts: list[RenderableType] = []
    for number, (key, _) in enumerate(find_jobs(inspection, wanted)):
        parts += [Text(), Rule(style="dim"), Text()] if number else []
        parts.append(story_view(tell(inspection, key, _SPARKS), zone))
    return Group(*parts)


def _header(inspection: Inspection, zone: tzinfo) -> "RenderableType":
    (machine,) = inspection.machines
    return header(machine, inspection.coverage[machine.archive], zone)


def _summary(inspection: Inspection, zone: tzinfo, top: int | None) -> "RenderableType":
    (archive,) = inspection.sources
    found = summary_of(inspection, archive)
    overview = Overview(
        machine=found.machine,
        coverage=found.coverage,
        use=found.use,
        timeline=inspection.timeline(archive, _SPARKS),
        jobs=found.jobs,
        containers=found.containers,
        wrong=found.wrong,
        gaps=found.gaps,
        advice=found.advice,
        energy=found.energy,
    )
    return Screen(overview, zone, top)


def _fleet(inspection: Inspection, zone: tzinfo, top: int | None) -> "RenderableType":
    rows = fleet_rows(inspection)
    parts: list[RenderableType] = [fleet_view(rows[:top], zone)]
    if hidden := len(rows) - len(rows[:top]):
        parts.append(Text(f"and {hidden} more", style="dim"))
    damaged = [gap for _, gap in inspection.gaps if gap.kind == "damage"]
    if damaged:
        parts += [
            Text(),
            Text("What could not be read", style="bold underline"),
            Grid(gap_columns(zone), damaged),
        ]
    return Group(*parts)
