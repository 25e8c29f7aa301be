"""`vmsonar inspect`: what happened on this VM, and what size should it have been."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError
from vmsonar_archive.system.moments import on_the_day, parse_moment, zone_of
from vmsonar_archive.system.rights import published, work_as_owner
from vmsonar_archive.write.outputs import PAGE, guard
from vmsonar_inspect.show.order import EVENT_KINDS, SORTS, VIEWS

from vmsonar.commands.live_view import follow
from vmsonar.commands.options import ForceOption, SinceOption, UntilOption, argument, flag, option, seconds_of
from vmsonar.commands.output import console, print_json, say, tell_findings, writing_to
from vmsonar.commands.run import run_path
from vmsonar.config.file import archive_in_question
from vmsonar.config.quantities import show_size
from vmsonar.host.streams import for_programs

if TYPE_CHECKING:
    from rich.console import RenderableType
    from vmsonar_inspect.inspection import Inspection, InspectionSettings
    from vmsonar_inspect.show.answers import Document

#: The time that --follow shows unless --from says otherwise.
_LATELY = "15min"
#: Steps of a job's timeline in JSON and CSV.
_STORY_STEPS = 240
_VIEWS = ", ".join(VIEWS)
_SORTS = ", ".join(SORTS)


@dataclass(frozen=True)
class Question:
    """What the user asks for."""

    view: str
    job: str | None
    zone: tzinfo
    sort: str | None
    top: int | None

    @property
    def is_story(self) -> bool:
        """Whether one job is told in full; of events only its own are listed."""
        return self.job is not None and self.view != "events"

    @property
    def is_deep(self) -> bool | None:
        """Whether processes have to be read, which are most of an archive; None: where they are few."""
        return True if self.is_story or self.view in ("advice", "programs") else None

    @property
    def listed(self) -> tuple[str, tzinfo, str | None, int | None, str | None]:
        """What makes a list."""
        return self.view, self.zone, self.sort, self.top, self.job


def _complete_view(incomplete: str) -> list[str]:
    """Completes a view; an empty word is left to the shell, which knows the paths."""
    return [name for name in VIEWS if incomplete and name.startswith(incomplete)]


def _complete_sort(incomplete: str) -> list[str]:
    return [name for name in SORTS if name.startswith(incomplete)]


def inspect_command(
    paths: Annotated[
        list[str] | None,
        argument(
            "[PATH…] [VIEW]",
            f"Archives, bundles, folders of them, lakes; then one of: {_VIEWS}.",
            autocompletion=_complete_view,
        ),
    ] = None,
    job: Annotated[str | None, option("ID", "The story of one job; its events in the view events.")] = None,
    kind: Annotated[
        str | None,
        option("KINDS", f"Only these events: {', '.join(EVENT_KINDS)}, or a type such as gpu_xid."),
    ] = None,
    sort: Annotated[str | None, option("KEY", f"By one of {_SORTS}.", autocompletion=_complete_sort)] = None,
    top: Annotated[int | None, option("N", "Show only so many rows.", min=1)] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    user: Annotated[str | None, option("NAME", "Only jobs and containers of this user.")] = None,
    pattern: Annotated[
        str | None, option("REGEX", "Only jobs whose command matches (RE2).", "--command")
    ] = None,
    min_runtime: Annotated[
        str | None, option("DURATION", "Only jobs that ran that long, such as 5min.")
    ] = None,
    tz: Annotated[str, option("ZONE", "Time zone, such as Europe/Berlin.")] = "UTC",
    country: Annotated[str | None, option("CODE", "Country whose electricity counts, such as DEU.")] = None,
    factors: Annotated[
        Path | None, option("FILE", "Time-varying emission factors: time, TAB, g/kWh.")
    ] = None,
    rules: Annotated[Path | None, option("FILE", "Rules that differ from the default.")] = None,
    programs: Annotated[
        Path | None, option("FILE", "Program map (TSV) that comes before the default.")
    ] = None,
    html: Annotated[Path | None, option("FILE", "Write one self-contained page.")] = None,
    force: ForceOption = False,
    follow: Annotated[
        bool, flag("--follow", "Show it again as the archive grows; the last 15 minutes unless --from.")
    ] = False,
    every: Annotated[str, option("DURATION", "How often --follow looks.")] = "5s",
    as_json: Annotated[bool, flag("--json", "Answer in JSON.")] = False,
    as_csv: Annotated[bool, flag("--csv", "Answer in CSV.")] = False,
) -> int:
    """Explains archives and bundles: who used the machine, what went wrong, what size would have done.

    Example: vmsonar inspect /var/lib/vmsonar jobs --from today --sort memory

    Example: vmsonar inspect vm.tar --job 4711

    Example: vmsonar inspect vm.tar events --kind exit,oom

    Example: vmsonar inspect bundles/ --html fleet.html

    Example: vmsonar inspect vm.tar programs --from 30d --csv

    Example: vmsonar inspect --follow
    """
    from vmsonar_inspect.tables.duckdb import need_engine

    need_engine("vmsonar inspect")
    from vmsonar_inspect.advice.rules import load_rules
    from vmsonar_inspect.facts.energy import load_factor
    from vmsonar_inspect.facts.programs import compile_pattern, load_programs
    from vmsonar_inspect.inspection import opened
    from vmsonar_inspect.show.answers import why_nothing

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: give one of them")
    if follow and (as_json or as_csv or html):
        raise UsageError("--follow shows tables: leave out --json, --csv and --html")
    if sort is not None and sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}: give one of {_SORTS}")
    folders, view = paths_and_view(paths or [])
    question = Question(view, job, zone_of(tz), sort, top)
    filters = {
        "kinds": _kinds(kind, view),
        "rules": load_rules(rules),
        "programs": load_programs(programs),
        "factor": load_factor(country, factors),
        "user": user,
        "command": None if pattern is None else compile_pattern(pattern, "--command"),
        "min_runtime": None if min_runtime is None else seconds_of(min_runtime, "--min-runtime"),
    }
    settings = partial(
        _settings, folders, question.zone, (_LATELY if follow and since is None else since, until), filters
    )
    place = guard(html, [*folders, factors, rules, programs], PAGE, force=force) if html else None
    work_as_owner(folders, output=html is not None)
    if follow:
        _follow(folders, settings, question, seconds_of(every, "--every"))
        return Exit.OK
    show = (
        partial(_print, question=question, as_json=as_json, as_csv=as_csv)
        if html is None or place is None
        else partial(_write_page, place=place, path=html, zone=question.zone)
    )
    with opened(folders, settings(), question.is_deep if html is None else None, first=html is None) as found:
        nothing = why_nothing(found, "summary" if html else view, folders) if job is None else None
        # Programs get an empty document or the header; people only the reason.
        if nothing is None or as_json or as_csv:
            show(found, nothing)
        code = tell_findings(found.findings)
    if nothing is not None:
        raise AnswerIsNo(nothing)
    return code


def _settings(
    folders: list[Path | str], zone: tzinfo, times: Sequence[str | None], filters: dict[str, Any]
) -> "InspectionSettings":
    """What is looked at, by the clock as it is now."""
    from vmsonar_inspect.inspection import InspectionSettings
    from vmsonar_inspect.show.answers import covered
    from vmsonar_inspect.tables.where import TimeFrame

    def moment(text: str) -> datetime:
        return parse_moment(on_the_day(text, zone, lambda: covered(folders)), zone, lambda: datetime.now(UTC))

    since, until = (None if text is None else moment(text) for text in times)
    return InspectionSettings(frame=TimeFrame(since, until), **filters)


def _kinds(text: str | None, view: str) -> frozenset[str]:
    """The kinds of events that were asked for."""
    if text is None:
        return frozenset()
    if view != "events":
        raise UsageError("--kind chooses events: give it with the view events")
    from vmsonar_inspect.facts.events import KINDS

    kinds = frozenset(name.strip() for name in text.split(",") if name.strip())
    if unknown := sorted(kinds - KINDS.keys() - set(KINDS.values())):
        raise UsageError(
            f"{unknown[0]!r} is no kind of event: give some of {', '.join(EVENT_KINDS)}, or types"
        )
    return kinds


def paths_and_view(arguments: list[str]) -> tuple[list[Path | str], str]:
    """Tells the view from the paths: a view's name that is no path is the view, wherever it stands."""
    views = [name for name in arguments if name in VIEWS and not Path(name).exists()]
    if len(views) > 1:
        raise UsageError(f"one view at a time: give one of {' and '.join(views)}")
    given = [name for name in arguments if name not in views]
    if (
        len(given) > 1
        and not views
        and not set("/@").intersection(given[-1])
        and not Path(given[-1]).exists()
    ):
        if "sql" in given:
            raise UsageError('sql is a command of its own: vmsonar sql PATH… "SELECT …"')
        raise UsageError(f"{given[-1]} is neither a path nor a view: give one of {_VIEWS}")
    paths = [name if name.startswith("s3://") else run_path(name) for name in given]
    return paths or [archive_in_question(None)], views[0] if views else "summary"


def _print(
    inspection: "Inspection", nothing: str | None, question: Question, as_json: bool, as_csv: bool
) -> None:
    from vmsonar_inspect.tables.progress import waiting

    with waiting("adding up"):
        answer = _answer(inspection, question, as_json, as_csv, nothing)
    answer()


def _answer(
    inspection: "Inspection", question: Question, as_json: bool, as_csv: bool, nothing: str | None
) -> "Callable[[], object]":
    """Computes the answer and returns what prints it."""
    if as_json:
        document = _document(inspection, question, nothing)
        return lambda: print_json(document)
    if as_csv:
        from vmsonar_inspect.show.answers import to_csv

        rows, kind = _csv_rows(inspection, question)
        return lambda: to_csv(for_programs(), rows, kind)
    view = _rendered(inspection, question)
    return lambda: console().print(view)


def _document(inspection: "Inspection", question: Question, nothing: str | None) -> "Document":
    from vmsonar_inspect.show.answers import document, json_rows

    if question.is_story and question.job is not None:
        stories = [inspection.story(key, _STORY_STEPS) for key in inspection.find_jobs(question.job)]
        return document(inspection, "job", stories)
    name, rows = json_rows(inspection, *question.listed)
    return document(inspection, name, rows, nothing)


def _csv_rows(inspection: "Inspection", question: Question) -> tuple[Sequence[Any], type]:
    from vmsonar_inspect.facts.model import StoryMoment
    from vmsonar_inspect.show.answers import ROW_TYPES, csv_rows

    if question.is_story and question.job is not None:
        latest = inspection.find_jobs(question.job)[0]
        return inspection.story(latest, _STORY_STEPS).timeline, StoryMoment
    rows = csv_rows(inspection, *question.listed)
    return rows, ROW_TYPES[question.view]


def _rendered(inspection: "Inspection", question: Question) -> "RenderableType":
    from vmsonar_inspect.show.terminal.views import render_job, render_view

    if question.is_story and question.job is not None:
        return render_job(inspection, question.job, question.zone)
    return render_view(inspection, *question.listed)


def _follow(
    folders: list[Path | str], settings: "Callable[[], InspectionSettings]", question: Question, every: float
) -> None:
    from vmsonar_inspect.inspection import opened
    from vmsonar_inspect.show.answers import why_nothing

    def look(quiet: bool) -> "RenderableType":
        with opened(folders, settings(), question.is_deep, quiet, first=True) as inspection:
            nothing = why_nothing(inspection, question.view, folders) if question.job is None else None
            if nothing is not None:
                raise AnswerIsNo(nothing)
            return _rendered(inspection, question)

    settings()  # refuses a wrong option before anything is shown
    follow(look, every)


def _write_page(
    inspection: "Inspection", _nothing: str | None, place: Path, path: Path, zone: tzinfo
) -> None:
    from vmsonar_inspect.show.page.build import write_page
    from vmsonar_inspect.tables.progress import waiting

    with writing_to(path), waiting(f"writing {path}"), published(place) as reached:
        size = write_page(inspection, reached, zone)
    say(f"wrote {path} ({show_size(size)})")
