"""`vmsonar inspect`: what happened on this VM, and what size should it have been."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from vmsonar_archive.errors import UsageError
from vmsonar_archive.moments import parse_moment, zone_of

from vmsonar.commands.inspect_follow import follow as follow_view
from vmsonar.commands.options import SinceOption, UntilOption
from vmsonar.commands.output import console, print_json, tell_findings, writing_to
from vmsonar.config_file import archive_in_question
from vmsonar.quantities import parse_duration, show_size
from vmsonar.streams import for_programs

if TYPE_CHECKING:
    from rich.console import RenderableType
    from vmsonar_inspect.answers import Document
    from vmsonar_inspect.inspection import Inspection, Settings

#: What --follow shows unless --from says otherwise, and how finely a job's story is told to programs.
_LATELY = "15min"
STORY_STEPS = 240


@dataclass(frozen=True)
class Wish:
    """What is to be shown."""

    view: str
    job: str | None
    zone: tzinfo
    sort: str | None
    top: int | None

    @property
    def is_deep(self) -> bool:
        """Whether processes have to be read, which are most of an archive."""
        return self.job is not None or self.view in ("advice", "programs")

    @property
    def is_first(self) -> bool:
        """Whether it is the first screen."""
        return self.view == "summary" and self.job is None


_VIEWS = "summary, jobs, containers, gpus, users, programs, timeline, advice, gaps"
_SORTS = "cpu, memory, gpu, runtime, start, read, write, energy, name"


def _complete_view(incomplete: str) -> list[str]:
    """Views that begin so; an empty word is left to the shell, which knows the paths."""
    return [name for name in _VIEWS.split(", ") if incomplete and name.startswith(incomplete)]


def _complete_sort(incomplete: str) -> list[str]:
    return [name for name in _SORTS.split(", ") if name.startswith(incomplete)]


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH…] [VIEW]",
            help=f"Archives, bundles, folders of them, lakes; then one of: {_VIEWS}.",
            autocompletion=_complete_view,
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help="The story of one job.")] = None,
    sort: Annotated[
        str | None,
        typer.Option(metavar="KEY", help=f"By one of {_SORTS}.", autocompletion=_complete_sort),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show only so many rows.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only jobs and containers of this user.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--command", metavar="REGEX", help="Only jobs whose command matches (RE2).")
    ] = None,
    min_runtime: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only jobs that ran that long, such as 5min.")
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="Time zone, such as Europe/Berlin.")] = "UTC",
    country: Annotated[
        str | None, typer.Option(metavar="CODE", help="Country whose electricity counts, such as DEU.")
    ] = None,
    factors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="Time-varying emission factors: time, TAB, g/kWh."),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Rules that differ from the default.")
    ] = None,
    programs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="Program map (TSV) that comes before the default."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Write one self-contained page.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Show it again as the archive grows; the last 15 minutes unless --from."
        ),
    ] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often --follow looks.")] = "5s",
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Answer in CSV.")] = False,
) -> None:
    """Explains archives and bundles: who used the machine, what went wrong, what size would have done.

    Example: vmsonar inspect /var/lib/vmsonar jobs --from today --sort memory

    Example: vmsonar inspect vm.tar --job 4711

    Example: vmsonar inspect bundles/ --html fleet.html

    Example: vmsonar inspect vm.tar programs --from 30d --csv

    Example: vmsonar inspect --follow
    """
    from vmsonar_inspect.engine import need_engine

    need_engine("vmsonar inspect")
    from vmsonar_inspect.energy import load_factor
    from vmsonar_inspect.frames import Frame
    from vmsonar_inspect.inspection import Settings
    from vmsonar_inspect.opening import opened
    from vmsonar_inspect.programs import compile_pattern, load_programs
    from vmsonar_inspect.rules import load_rules
    from vmsonar_inspect.waiting import waiting

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: give one of them")
    if follow and (as_json or as_csv or html):
        raise UsageError("--follow shows tables: leave out --json, --csv and --html")
    _check_sort(sort)
    folders, view = divided(paths or [])
    zone = zone_of(tz)

    def settings() -> Settings:
        begin = since if since is not None or not follow else _LATELY
        moments = [None if text is None else parse_moment(text, zone, _now) for text in (begin, until)]
        return Settings(
            frame=Frame(*moments),
            user=user,
            command=None if pattern is None else compile_pattern(pattern, "--command"),
            min_runtime=None if min_runtime is None else _duration(min_runtime, "--min-runtime"),
            rules=load_rules(rules),
            programs=load_programs(programs),
            factor=load_factor(country, factors),
        )

    wish = Wish(view, job, zone, sort, top)
    if follow:
        _follow(folders, settings, wish, _duration(every, "--every"))
        return
    deep = wish.is_deep if html is None else None
    with opened(folders, settings(), deep, first=wish.is_first and html is None) as inspection:
        if html is not None:
            _write_page(inspection, html, zone)
        else:
            with waiting("adding up"):
                answer = _answer(inspection, wish, as_json, as_csv)
            answer()
        tell_findings(inspection.findings)


def divided(arguments: list[str]) -> tuple[list[Path | str], str]:
    """The paths and the view: a view's name that is no path is the view, wherever it stands."""
    from vmsonar_inspect.answers import VIEWS

    views = [name for name in arguments if name in VIEWS and not Path(name).exists()]
    if len(views) > 1:
        raise UsageError(f"one view at a time: give one of {' and '.join(views)}")
    given = [name for name in arguments if name not in views]
    if len(given) > 1 and not views and "/" not in given[-1] and not Path(given[-1]).exists():
        raise UsageError(f"{given[-1]} is neither a path nor a view: give one of {_VIEWS}")
    paths = [name if name.startswith("s3://") else Path(name) for name in given]
    return paths or [archive_in_question(None)], views[0] if views else "summary"


def _now() -> datetime:
    return datetime.now(UTC)


def _duration(text: str, option: str) -> float:
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _check_sort(sort: str | None) -> None:
    from vmsonar_inspect.answers import SORTS

    if sort is not None and sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}: give one of {', '.join(SORTS)}")


def _answer(inspection: "Inspection", wish: Wish, as_json: bool, as_csv: bool) -> "Callable[[], object]":
    """Finds the answer; what is returned only prints it."""
    if as_json:
        document = _document(inspection, wish)
        return lambda: print_json(document)
    if as_csv:
        table = _csv(inspection, wish)
        return lambda: for_programs().write(table)
    view = _presented(inspection, wish)
    return lambda: console().print(view)


def _document(inspection: "Inspection", wish: Wish) -> "Document":
    from vmsonar_inspect.answers import document, json_rows
    from vmsonar_inspect.stories import find_jobs, tell

    if wish.job is not None:
        found = [tell(inspection, key, STORY_STEPS) for key, _ in find_jobs(inspection, wish.job)]
        return document(inspection, "job", found)
    name, rows = json_rows(inspection, wish.view, wish.zone, wish.sort, wish.top)
    return document(inspection, name, rows)


def _csv(inspection: "Inspection", wish: Wish) -> str:
    from vmsonar_inspect.answers import ROW_TYPES, csv_rows, to_csv
    from vmsonar_inspect.stories import StoryMoment, find_jobs, tell

    if wish.job is not None:
        key, _ = find_jobs(inspection, wish.job)[0]
        return to_csv(tell(inspection, key, STORY_STEPS).timeline, StoryMoment)
    return to_csv(csv_rows(inspection, wish.view, wish.zone, wish.sort, wish.top), ROW_TYPES[wish.view])


def _presented(inspection: "Inspection", wish: Wish) -> "RenderableType":
    from vmsonar_inspect.render.present import present, present_job

    if wish.job is not None:
        return present_job(inspection, wish.job, wish.zone)
    return present(inspection, wish.view, wish.zone, wish.sort, wish.top)


def _follow(folders: list[Path | str], settings: "Callable[[], Settings]", wish: Wish, every: float) -> None:
    from vmsonar_inspect.opening import opened

    def look(quiet: bool) -> "RenderableType":
        with opened(folders, settings(), wish.is_deep, quiet, wish.is_first) as inspection:
            return _presented(inspection, wish)

    settings()  # a wrong option is told before anything is shown
    follow_view(look, every)


def _write_page(inspection: "Inspection", path: Path, zone: tzinfo) -> None:
    from vmsonar_inspect.page.build import write_page
    from vmsonar_inspect.waiting import waiting

    with writing_to(path), waiting(f"writing {path}"):
        size = write_page(inspection, path, zone)
    print(f"wrote {path} ({show_size(size)})")
