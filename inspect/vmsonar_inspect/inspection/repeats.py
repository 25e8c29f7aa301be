"""Jobs of archives as the sides of a comparison: those of one name, or of every name that all sides have."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from vmsonar_archive.system.errors import AnswerIsNo, VmsonarError

from vmsonar_inspect.facts.comparison import Side
from vmsonar_inspect.facts.job_model import JobUse
from vmsonar_inspect.facts.programs import basename
from vmsonar_inspect.facts.queries import Key
from vmsonar_inspect.facts.runs import RunUse
from vmsonar_inspect.inspection.judgement import Inspection
from vmsonar_inspect.inspection.opening import opened
from vmsonar_inspect.inspection.recorded import InspectionSettings

#: Of the jobs of one name so many are compared.
MOST_JOBS = 20
#: What a job and a run have in common.
_SAME = (
    *("command", "started", "cpu_seconds", "cpu_seconds_low", "cpu_seconds_high", "cpu_is_lower_bound"),
    *(
        "read_bytes",
        "read_bytes_low",
        "read_bytes_high",
        "write_bytes",
        "write_bytes_low",
        "write_bytes_high",
    ),
    *("io_is_lower_bound", "memory_peak_low_bytes", "memory_peak_high_bytes", "memory_peak_source"),
    *("memory_source", "memory_charged_peak_bytes", "energy", "samples"),
)


def named_side(name: str, path: Path, wanted: str) -> Side:
    """The job of that id, or those that are called so."""
    with opened([path], InspectionSettings(), quiet=True) as inspection:
        every = inspection.keyed_jobs
        with suppress(AnswerIsNo):
            return _side(inspection, name, inspection.find_jobs(wanted)[:1])
        found = [key for key, job in every.items() if wanted in _names(job)]
        if not found:
            raise VmsonarError(f"{path} has no job {wanted!r}: vmsonar inspect {path} jobs lists them")
        return _side(inspection, name, found)


def matched_sides(sides: Sequence[tuple[str, Sequence[Path]]]) -> list[list[Side]]:
    """For each name that jobs of all sides share these jobs, the most CPU time first.

    A job is taken by the most telling of its names that the others know too.
    """
    read = [_by_names(paths) for _, paths in sides]
    shared = set.intersection(*({each for names, _ in jobs for each in names} for jobs in read))
    groups: dict[str, list[list[RunUse]]] = {}
    for place, jobs in enumerate(read):
        for names, run in jobs:
            if name := next((each for each in names if each in shared), None):
                groups.setdefault(name, [[] for _ in sides])[place].append(run)
    works = [
        [_alike(f"{side}#{name}", runs) for (side, _), runs in zip(sides, repeats, strict=True)]
        for name, repeats in groups.items()
        if all(repeats)
    ]
    if not works:
        raise VmsonarError(
            "no job of one name has ended on all sides: name those that are meant, such as PATH#JOB"
        )
    return sorted(works, key=lambda work: -sum(sum(side.values("cpu")) for side in work))


def _by_names(paths: Sequence[Path]) -> list[tuple[list[str], RunUse]]:
    """The jobs of a side that have ended, each with its names."""
    with opened(paths, InspectionSettings(), quiet=True) as inspection:
        return [
            (_names(job), _as_run(inspection, key, job))
            for key, job in inspection.keyed_jobs.items()
            if _is_over(job) and job.is_one_job and job.is_told_apart
        ]


def _names(job: JobUse) -> list[str]:
    """What it may be called, the most telling first."""
    given = job.job_name, job.command, job.label, basename(job.command or ""), job.program
    return [*dict.fromkeys(name for name in given if name)]


def _side(inspection: Inspection, name: str, keys: Iterable[Key]) -> Side:
    jobs = {key: inspection.keyed_jobs[key] for key in keys}
    ended = [_as_run(inspection, key, job) for key, job in jobs.items() if _is_over(job)]
    if not ended:
        raise VmsonarError(f"{name} still runs, or its record ends before it")
    side = _alike(name, ended)
    side.left_out += len(jobs) - len(ended)
    return side


def _is_over(job: JobUse) -> bool:
    """The command of `vmsonar run` is still a zombie in the last sample."""
    return job.ended or job.ending.source == "run"


def _alike(name: str, runs: Sequence[RunUse]) -> Side:
    """The latest, and those that ended as it did."""
    newest = sorted(runs, key=lambda run: run.started.timestamp() if run.started else 0.0, reverse=True)
    kind = newest[0].exit_code, newest[0].exit_signal
    same = [run for run in newest if (run.exit_code, run.exit_signal) == kind][:MOST_JOBS]
    return Side(name=name, runs=same, left_out=len(runs) - len(same))


def _as_run(inspection: Inspection, key: Key, job: JobUse) -> RunUse:
    """As far as it has what a run has; what waited meanwhile is known of the machine."""
    context = inspection.contexts.get(key)
    run = RunUse(
        **{name: getattr(job, name) for name in _SAME},
        archive=f"{inspection.sources[job.archive or '']}#{job.series_id}",
        recording=f"{job.archive}#{job.series_id}",
        elapsed_seconds=job.runtime_seconds,
        elapsed_seconds_low=job.runtime_seconds_low,
        exit_code=job.ending.exit_code,
        exit_signal=job.ending.exit_signal,
        core_dumped=job.ending.core_dumped,
        ended=job.end,
        ended_by=job.ending.words,
        cpu_source="record",
        cores=job.cores.mean,
        cores_available=job.allocated_cpus or inspection.node_use[job.archive or ""].cpus,
        memory_peak_bytes=job.memory_bytes.peak,
        gpu_util=job.gpu_util.mean,
    )
    if context is not None:
        run.waited_cpu, run.waited_memory = context.pressure_cpu, context.pressure_memory
        run.waited_io, run.waited_source = context.pressure_io, "machine"
    return run
