"""`vmsonar compare`: runs, archives, bundles and jobs side by side, with gates for CI."""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError, VmsonarError
from vmsonar_inspect.facts import comparison, units
from vmsonar_inspect.facts.fields import shown_field
from vmsonar_inspect.facts.job_model import JobUse
from vmsonar_inspect.facts.runs import RunUse, read_run

from vmsonar.commands.options import JsonOption, argument, option
from vmsonar.commands.output import print_json, print_table, say
from vmsonar.commands.run import run_path
from vmsonar.daemon.run_folders import RunFolders

_UNDECIDED = "not decided: give five repeats of each side"
#: Of the jobs of one name so many are compared.
_MOST_JOBS = 20
#: What a job and a run have in common.
_SAME = (
    *("command", "started", "cpu_seconds", "read_bytes", "write_bytes", "energy", "samples"),
    *("memory_peak_low_bytes", "memory_peak_high_bytes", "memory_peak_source"),
)


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
        both = [_side(text, repeat) for text in sides]
    except AnswerIsNo as error:  # would look like a gate that failed
        raise VmsonarError(str(error)) from None
    runs = [run for side in both for run in side.runs]
    taken = Counter(run.recording for run in runs)
    if twice := [run.archive for run in runs if taken[run.recording] > 1]:
        raise UsageError(f"{twice[-1]} is on more than one side, or twice, or a copy: every run counts once")
    found = comparison.compare(both, gate or ())
    if json:
        print_json(found)
    else:
        _show(found)
    return Exit.NO if any(each.failed for each in found.gates) else Exit.OK


def _side(text: str, repeat: int) -> comparison.Side:
    runs = [each for part in text.split(",") for each in _runs(part, repeat)]
    return comparison.Side(name=text, runs=runs)


def _runs(text: str, repeat: int) -> list[RunUse]:
    path, _, job = text.partition("#")
    if job and repeat > 1:
        raise UsageError(
            f"{text}: --repeat takes runs; of jobs the latest {_MOST_JOBS} of a name are repeats"
        )
    if job:
        return _jobs(run_path(path), job)
    first = run_path(text)
    run = read_run(first)
    if run.elapsed_seconds is None:
        raise VmsonarError(f"{text}: {run.command} still runs, or its record ends before it")
    return [run] if repeat == 1 else _repeats(text, first, run, repeat)


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


def _jobs(path: Path, wanted: str) -> list[RunUse]:
    """The jobs of any archive with that program or command, or one by its id."""
    from vmsonar_inspect.inspection import InspectionSettings, opened

    with opened([path], InspectionSettings(), quiet=True) as inspection:
        named = [job for job in inspection.jobs if wanted in (job.job, job.program, job.command)]
        named.sort(key=lambda job: job.first.timestamp() if job.first else 0.0, reverse=True)
        found = named[:_MOST_JOBS] or [inspection.keyed_jobs[inspection.find_jobs(wanted)[0]]]
        return [_as_run(path, job, inspection.node_use[job.archive or ""].cpus) for job in found]


def _as_run(path: Path, job: JobUse, cpus: float | None) -> RunUse:
    """As far as it has what a run has."""
    return RunUse(
        **{name: getattr(job, name) for name in _SAME},
        archive=f"{path}#{job.series_id}",
        recording=f"{job.archive}#{job.series_id}",
        elapsed_seconds=job.runtime_seconds,
        ended_by=job.ending.words,
        cpu_source="record",
        cores_available=cpus,
        memory_peak_bytes=job.memory_bytes.peak,
        gpu_util=job.gpu_util.mean,
    )


def _show(found: comparison.Comparison) -> None:
    first = found.sides[0]
    for side in found.sides:
        if failed := [run for run in side.runs if run.exit_code or run.exit_signal]:
            say(
                f"{side.name}: {len(failed)} of {units.plural(len(side.runs), 'run')} failed ({failed[0].ended_by})"
            )
    for side in found.sides[1:]:
        if len(found.sides) > 2:
            say(f"{first.name} against {side.name}")
        known = [each for each in found.differences if each.side == side.name and each.before is not None]
        print_table(("", "before", "after", "change", "spread", "chance"), map(_row, known))
    for gate in found.gates:
        verdict = "failed" if gate.failed else "kept" if gate.decided else _UNDECIDED
        doubt = "; figures are not exact, and no gate sees all of a change" if gate.is_uncertain else ""
        say(f"gate {gate.gate}: {verdict} (change {_percent(gate.change)}, p = {gate.p:.3f}){doubt}")
    if found.scaling is not None:
        _show_scaling(found.scaling)


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


def _row(each: comparison.Difference) -> tuple[str, ...]:
    write = shown_field(RunUse, comparison.MEASURES[each.measure]).write
    spread = ", ".join(
        units.share(part) for part in (each.spread_before, each.spread_after) if part is not None
    )
    chance = "" if each.p is None else f"{each.p:.3f}"
    return each.measure, write(each.before), write(each.after), _percent(each.change), spread, chance


def _percent(change: float | None) -> str:
    return units.UNKNOWN if change is None else f"{100 * change:+.1f} %"
