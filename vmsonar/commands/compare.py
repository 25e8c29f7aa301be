"""`vmsonar compare`: runs, archives, bundles and jobs side by side, with gates for CI."""

from collections import Counter
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError, VmsonarError
from vmsonar_inspect.facts import comparison, units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.runs import NoRun, RunUse, read_run

from vmsonar.commands.options import JsonOption, argument, option
from vmsonar.commands.output import print_json, print_table, say
from vmsonar.commands.run import run_path
from vmsonar.daemon.run_folders import RunFolders

_UNDECIDED = "not decided: give five repeats of each side"
#: So many jobs that archives have in common are shown.
_MOST_WORKS = 50
#: And of each these.
_SHORT = ("elapsed", "cpu", "memory_peak")


def compare_command(
    sides: Annotated[
        list[str],
        argument("A B [C…]", "Runs (@2), archives, bundles, jobs (PATH#JOB); repeats joined by commas."),
    ],
    repeat: Annotated[
        int, option("N", "Take so many runs of each side's command, from it backwards.", min=1)
    ] = 1,
    gate: Annotated[
        list[str] | None, option("LIMIT", "Exit 1 if a side is beyond it, such as 'cpu<=+5%'.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Compares what two or more commands, or jobs, used; several repeats show what is more than noise.

    Example: vmsonar compare @2 @1

    Example: vmsonar compare old1.tar,old2.tar,old3.tar new1.tar,new2.tar,new3.tar

    Example: vmsonar compare @6 @1 --repeat 5 --gate 'cpu<=+5%' --gate 'memory_peak<=+10%'
    """
    if len(sides) < 2:
        raise UsageError("compare needs two sides or more, such as @2 @1 (see: vmsonar runs)")
    try:
        works = _works(sides, repeat)
    except AnswerIsNo as error:  # would look like a gate that failed
        raise VmsonarError(str(error)) from None
    runs = [run for work in works for side in work for run in side.runs]
    taken = Counter(run.recording for run in runs)
    if twice := [run.archive for run in runs if taken[run.recording] > 1]:
        raise UsageError(f"{twice[-1]} is on more than one side, or twice, or a copy: every run counts once")
    found = comparison.compare(works[0], gate or ()) if len(works) == 1 else _of_all(works, gate)
    if json:
        print_json(found)
    else:
        _show(found, len(sides))
    return Exit.NO if any(each.failed for each in found.gates) else Exit.OK


def _works(texts: list[str], repeat: int) -> list[list[comparison.Side]]:
    """What is compared, on all sides: one work, or every job that archives without a run have in common."""
    parts = {text: text.split(",") for text in texts}
    runs = {part: _run_of(run_path(part)) for part in chain(*parts.values()) if "#" not in part}
    if repeat == 1 and all(isinstance(runs.get(part), NoRun) for part in chain(*parts.values())):
        from vmsonar_inspect.inspection.repeats import matched_sides

        return matched_sides([(text, [run_path(part) for part in parts[text]]) for text in texts])
    return [[_side(text, [_part(part, repeat, runs.get(part)) for part in parts[text]]) for text in texts]]


def _run_of(path: Path) -> RunUse | NoRun:
    try:
        return read_run(path)
    except NoRun as error:
        return error


def _of_all(works: list[list[comparison.Side]], gates: list[str] | None) -> comparison.Comparison:
    if gates:  # of twenty jobs one fails by chance
        raise UsageError("a gate is for one work: name the job on each side, such as PATH#JOB")
    return comparison.compare_each(works)


def _side(name: str, parts: list[comparison.Side]) -> comparison.Side:
    runs = [run for part in parts for run in part.runs]
    return comparison.Side(name=name, runs=runs, left_out=sum(part.left_out for part in parts))


def _part(text: str, repeat: int, run: RunUse | NoRun | None) -> comparison.Side:
    """One run and its repeats, or the jobs that are named."""
    if isinstance(run, NoRun):
        raise run
    if run is None:
        from vmsonar_inspect.inspection.repeats import named_side

        if repeat > 1:
            raise UsageError(f"{text}: --repeat takes runs; of jobs the latest of a name are repeats")
        path, _, job = text.partition("#")
        return named_side(text, run_path(path), job)
    if run.elapsed_seconds is None:
        raise VmsonarError(f"{text}: {run.command} still runs, or its record ends before it")
    runs = [run] if repeat == 1 else _repeats(text, run_path(text), run, repeat)
    return comparison.Side(name=text, runs=runs)


def _repeats(text: str, first: Path, run: RunUse, repeat: int) -> list[RunUse]:
    """So many runs of its command that ended as it did, from it backwards."""
    folders = RunFolders.of_user()
    if first.resolve().parent != folders.root.resolve():
        raise UsageError(f"{text}: --repeat takes what vmsonar runs lists; join other repeats by commas")
    same = [run]
    for folder in folders.newest_first():
        if folder.name < first.name and len(same) < repeat:
            with suppress(VmsonarError):  # killed before its command began
                other = read_run(folder)
                if other.command and _kind(other) == _kind(run):
                    same.append(other)
    if len(same) < repeat:
        what = run.command or "a command that was not recorded"
        raise UsageError(f"{text}: only {len(same)} runs of {what} ended so, not {repeat}")
    return same


def _kind(run: RunUse) -> tuple[object, ...]:
    return run.command, run.exit_code, run.exit_signal, run.elapsed_seconds is None


def _show(found: comparison.Comparison, sides: int) -> None:
    if len(found.sides) > sides:
        _show_works(found)
    else:
        _show_sides(found)
    for gate in found.gates:
        verdict = "failed" if gate.failed else "kept" if gate.decided else _UNDECIDED
        doubt = "; figures are not exact, and no gate sees all of a change" if gate.is_uncertain else ""
        say(f"gate {gate.gate}: {verdict} (change {_percent(gate.change)}, p = {gate.p:.3f}){doubt}")
    if found.scaling is not None:
        _show_scaling(found.scaling)


def _show_works(found: comparison.Comparison) -> None:
    """A line for each job that the sides have in common, on every side after the first."""
    named = {side.name: side for side in found.sides}
    rows: dict[str, list[str]] = {}
    for each in found.differences:
        if each.measure in _SHORT:
            both = named[each.against], named[each.side]
            number = ", ".join(str(len(side.runs)) for side in both)
            failed = ", ".join(str(len(side.failed)) for side in both if both[0].failed or both[1].failed)
            rows.setdefault(each.side, [each.side, number, failed]).extend(_row(each, named)[1:4])
    titles = ("", "jobs", "failed", *(title for name in _SHORT for title in (name, "after", "change")))
    print_table(titles, [*rows.values()][:_MOST_WORKS])
    if len(rows) > _MOST_WORKS:
        say(f"and {len(rows) - _MOST_WORKS} more: --json has them all")
    say("everything of one job, and gates: name it on each side, such as PATH#JOB")


def _show_sides(found: comparison.Comparison) -> None:
    first, named = found.sides[0], {side.name: side for side in found.sides}
    for side in found.sides:
        if side.left_out:
            why = "not ended, ended otherwise than the latest, or older"
            say(f"{side.name}: {units.plural(side.left_out, 'job')} left out ({why})")
        if side.failed:
            runs = units.plural(len(side.runs), "run")
            say(f"{side.name}: {len(side.failed)} of {runs} failed ({side.failed[0].ended_by})")
    for side in found.sides[1:]:
        if len(found.sides) > 2:
            say(f"{first.name} against {side.name}")
        known = [each for each in found.differences if each.side == side.name and each.before is not None]
        print_table(
            ("", "before", "after", "change", "spread", "chance"), [_row(each, named) for each in known]
        )


def _show_scaling(scaling: comparison.Scaling) -> None:
    columns = [
        shown_field(comparison.ScalingStep, name)
        for name in ("cores", "elapsed_seconds", "speed_up", "efficiency")
    ]
    rows = [[column.marked(step) for column in columns] for step in scaling.steps]
    print_table([column.title for column in columns], rows)
    error = "" if scaling.serial_share_error is None else f" ± {100 * scaling.serial_share_error:.1f}"
    say(
        f"serial share {100 * scaling.serial_share:.1f}{error} % (Amdahl); "
        f"{scaling.twice_cores:g} cores would take about {units.elapsed(scaling.twice_elapsed_seconds)}"
    )


def _row(each: comparison.Difference, sides: dict[str, comparison.Side]) -> tuple[str, ...]:
    write = shown_field(RunUse, comparison.MEASURES[each.measure]).write
    before, after = (sides[name].mark(each.measure) for name in (each.against, each.side))
    spread = ", ".join(
        units.share(part) for part in (each.spread_before, each.spread_after) if part is not None
    )
    chance = "" if each.p is None else f"{each.p:.3f}"
    figures = before + write(each.before), after + write(each.after)
    doubt = "~" if each.change is not None and before + after else ""
    return each.measure, *figures, doubt + _percent(each.change), spread, chance


def _percent(change: float | None) -> str:
    return units.UNKNOWN if change is None else f"{100 * change:+.1f} %"
