"""Batch jobs: all their process groups as one job with one total, what they were given, and the steps below."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any

import msgspec

from vmsonar_inspect.facts.model import NOTHING, Ending, JobUse, StepUse, TaskUse, Use
from vmsonar_inspect.facts.queries import (
    JOB_KEY,
    Key,
    Queries,
    Record,
    grouped,
    number,
    total,
    use_columns,
    use_of,
)

SLURM = "slurm"
_KEY = ", ".join(JOB_KEY)
_CLOCKS = timedelta(minutes=1)

# Per sample over the groups of a job, then over time. A group that lived for part of an interval counts for that part.
_PROFILES = f"""
    WITH moments AS (
        SELECT g.archive, g.boot, g.leader_pgid AS pgid, g.leader_start AS start_ticks, r.run, r.seq,
            MAX(r.interval_seconds) AS interval_seconds,
            SUM(r.cpu_cores * r.interval_seconds) / MAX(r.interval_seconds) AS cores,
            SUM(r.memory) AS memory, SUM(r.threads) AS threads, SUM(r.processes) AS processes,
            SUM(r.read_bytes_per_second) AS read_rate, SUM(r.write_bytes_per_second) AS write_rate
        FROM job_rates AS r JOIN batch_groups AS g USING ({_KEY})
        GROUP BY ALL
    )
    SELECT {_KEY}, SUM(interval_seconds) AS seconds, COUNT(DISTINCT seq) AS samples, MAX(processes) AS processes_peak,
        {use_columns("cores", "cores")}, {use_columns("memory", "memory")}, {use_columns("threads", "threads")},
        {use_columns("read_rate", "read_rate")}, {use_columns("write_rate", "write_rate")}
    FROM moments GROUP BY {_KEY}"""  # noqa: S608

_CHARGED = """
    SELECT archive, batch_job, batch_step, MAX(memory_peak) AS peak FROM cgroup
    WHERE cgroup_kind = 'slurm' GROUP BY ALL"""

_STEP_PEAKS = f"""
    SELECT {_KEY}, step, MAX(memory) AS peak
    FROM (
        SELECT g.archive, g.boot, g.leader_pgid AS pgid, g.leader_start AS start_ticks, g.step, r.run, r.seq,
            SUM(r.memory) AS memory
        FROM job_rates AS r JOIN batch_groups AS g USING ({_KEY})
        GROUP BY ALL
    ) GROUP BY ALL"""  # noqa: S608


def merge_batches(queries: Queries, jobs: dict[Key, JobUse]) -> dict[Key, JobUse]:
    """The jobs with the process groups of each batch job as one, by the key of the group that began first."""
    groups = [key for key, job in jobs.items() if job.job_source == SLURM]
    if not groups:
        return jobs
    numbers = {job.sluid: job.job for job in jobs.values() if job.sluid and job.job != job.sluid}
    batches = grouped(groups, lambda key: (*key[:2], numbers.get(jobs[key].job, jobs[key].job)))
    leaders = {key: min(keys, key=lambda key: key[::-1]) for keys in batches.values() for key in keys}
    queries.merge_groups(leaders, {key: jobs[key].batch_step for key in leaders})
    profiles = queries.by(JOB_KEY, _PROFILES)
    sampled = queries.by((*JOB_KEY, "step"), _STEP_PEAKS)
    by_group = ("archive", "batch_job", "batch_step")
    charged = queries.by(by_group, _CHARGED) if queries.has("cgroup") else {}
    records = queries.rows("SELECT * FROM latest_batch_job") if queries.has("batch_job") else []
    told = grouped(records, lambda record: record["batch_job"])
    merged = {key: job for key, job in jobs.items() if key not in leaders}
    for (archive, _, name), keys in batches.items():
        whole = _merged([jobs[key] for key in sorted(keys, key=lambda key: key[::-1])], name)
        if len(keys) > 1:
            _profile(whole, profiles.get(leaders[keys[0]], {}))
        # Its control group has the job's number or its SLUID as a name.
        for each in {name, *(jobs[key].sluid for key in keys)}:
            if peak := charged.get((archive, each, None), {}).get("peak"):
                whole.memory_charged_peak_bytes = number(peak)
            for step in whole.steps:
                if peak := charged.get((archive, each, step.step), {}).get("peak") if step.step else None:
                    step.memory_charged_peak_bytes = number(peak)
        for step in whole.steps:
            at_once = number(sampled.get((*leaders[keys[0]], step.step), {}).get("peak"))
            step.memory_peak_bytes = max(step.memory_peak_bytes or 0.0, at_once or 0.0) or None
        record = _record_of(whole, told.get(name, []))
        if record is not None:
            _add_record(whole, record)
        merged[leaders[keys[0]]] = whole
    return merged


def _merged(groups: Sequence[JobUse], name: str) -> JobUse:
    """One job of several process groups; its figures over time are those of the busiest until they are known better."""
    busiest = max(groups, key=lambda job: job.cpu_seconds or 0.0)
    whole = msgspec.structs.replace(busiest, job=name, steps=_steps(groups))
    if len(groups) == 1:
        return whole
    whole.batch_task = None
    if len(whole.steps) > 1:
        whole.batch_step = None
    for field in ("cpu_seconds", "read_bytes", "write_bytes"):
        flag = "cpu_is_lower_bound" if field == "cpu_seconds" else "io_is_lower_bound"
        for each, value in summed(field, flag, groups).items():
            setattr(whole, each, value)
    for flag in ("cpu_is_lower_bound", "io_is_lower_bound"):
        setattr(whole, flag, any(getattr(job, flag) for job in groups))
    for field in ("processes_seen", "processes_unseen", "major_faults", "gpu_seconds", "memory_byte_seconds"):
        setattr(whole, field, total(getattr(job, field) for job in groups))
    whole.series_id = groups[0].series_id
    whole.started = min((job.started for job in groups if job.started), default=None)
    whole.first = min((job.first for job in groups if job.first), default=None)
    whole.last = max((job.last for job in groups if job.last), default=None)
    whole.ended = all(job.ended for job in groups)
    whole.end = max((job.end for job in groups if job.end), default=None) if _all_told(groups) else None
    whole.runtime_seconds = _runtime([(job.started, job.runtime_seconds) for job in groups])
    least = _runtime([(job.started, _least_runtime(job)) for job in groups])
    whole.runtime_seconds_low = None if least == whole.runtime_seconds else least
    whole.gpus = sorted({gpu for job in groups for gpu in job.gpus})
    if sum(bool(job.gpus) for job in groups) > 1:
        whole.gpu_util = whole.gpu_memory_bytes = NOTHING  # of several groups at once nobody has added it up
    _add_peaks(whole, groups)
    return whole


def _add_peaks(whole: JobUse, groups: Sequence[JobUse]) -> None:
    """Groups that had their peaks at different times had less together than the sum: that is the upper bound."""
    peaks = [job.memory_peak_high_bytes or job.memory_bytes.peak for job in groups]
    known = [peak for peak in peaks if peak is not None]
    whole.memory_peak_high_bytes = sum(known) if len(known) == len(peaks) else None
    whole.memory_peak_low_bytes = None
    whole.memory_peak_source = "sampled"
    whole.memory_source = min((job.memory_source for job in groups if job.memory_source), default=None)


def _profile(whole: JobUse, row: Record) -> None:
    """Figures over time of all groups together."""
    lone = whole.memory_bytes.peak
    whole.observed_seconds = number(row.get("seconds"))
    whole.samples = row.get("samples") or whole.samples
    whole.processes_peak = row.get("processes_peak")
    whole.cores, whole.threads = use_of(row, "cores"), use_of(row, "threads")
    whole.read_rate, whole.write_rate = use_of(row, "read_rate"), use_of(row, "write_rate")
    memory = use_of(row, "memory")
    peak = max((each for each in (memory.peak, lone) if each is not None), default=None)
    whole.memory_bytes = msgspec.structs.replace(memory, peak=peak)
    if peak is not None and whole.memory_peak_high_bytes is not None and whole.memory_peak_high_bytes <= peak:
        whole.memory_peak_high_bytes = None


def _add_record(whole: JobUse, told: Record) -> None:
    """What Slurm says of it: amounts are those of all its nodes, of which this is one."""
    whole.cluster, whole.job_name, whole.job_state = told["cluster_name"], told["job_name"], told["job_state"]
    whole.account, whole.project = told["account"], told["project"]
    if told["array_task"] is not None:
        whole.array_task = f"{told['array_job']}_{told['array_task']}"
    whole.nodes = told["allocated_nodes"]
    for when in ("requested", "allocated"):
        for field, column in (("cpus", "cpus"), ("memory_bytes", "memory"), ("gpus", "gpus")):
            setattr(whole, f"{when}_{field}", number(told[f"{when}_{column}"]))
    whole.time_limit_seconds = number(told["time_limit"])
    if told["start_time"] is not None and told["submit_time"] is not None:
        whole.queued_seconds = max(0.0, (told["start_time"] - told["submit_time"]).total_seconds())
    end = told["end_time"]
    if end is None:
        return
    if whole.last is not None:
        alive = whole.end or (whole.last if not whole.ended else _last_alive(whole))
        whole.outlived_seconds = max(0.0, (alive - end).total_seconds()) if alive is not None else None
    words = f"Slurm: {told['job_state']}"
    words += f", exit code {told['exit_code']}" if told["exit_code"] else ""
    words += f", signal {told['exit_signal']}" if told["exit_signal"] else ""
    whole.ending = Ending(
        words=words, exit_code=told["exit_code"], exit_signal=told["exit_signal"], source=SLURM
    )


def _last_alive(job: JobUse) -> datetime | None:
    """The last moment at which somebody surely ran."""
    seconds = _least_runtime(job)
    return None if job.started is None or seconds is None else job.started + timedelta(seconds=seconds)


def _steps(groups: Sequence[JobUse]) -> list[StepUse]:
    """A row for each step, in the order in which they began."""
    found = []
    for step, members in grouped(groups, lambda job: job.batch_step).items():
        of_tasks = grouped((job for job in members if job.batch_task is not None), lambda job: job.batch_task)
        tasks = [
            TaskUse(task=task or 0, hostname=theirs[0].hostname, **_part(theirs))
            for task, theirs in sorted(of_tasks.items(), key=lambda item: item[0] or 0)
        ]
        found.append(StepUse(step=step, tasks=tasks, **_part(members)))
    return found


def steps_over(parts: Sequence[JobUse]) -> list[StepUse]:
    """The steps of a job on all its machines, with all tasks side by side."""
    found = []
    every = (step for part in parts for step in part.steps)
    for name, steps in grouped(every, lambda step: step.step).items():
        tasks = sorted((task for each in steps for task in each.tasks), key=lambda task: task.task)
        found.append(StepUse(step=name, tasks=tasks, **_part(steps)))
    return found


def _part(members: Sequence[Any]) -> dict[str, Any]:
    """What process groups, or a step on several machines, used together; of memory the most of one group."""
    peaks = (each.memory_bytes.peak for each in members if isinstance(each, JobUse))
    return {
        "groups": sum(getattr(each, "groups", 1) for each in members),
        "memory_peak_bytes": max((peak for peak in peaks if peak is not None), default=None),
        "command": max(members, key=lambda each: each.cpu_seconds or 0.0).command,
        "started": min((each.started for each in members if each.started), default=None),
        "cpu_seconds": total(each.cpu_seconds for each in members),
        "gpu_seconds": total(each.gpu_seconds for each in members),
    }


def _all_told(groups: Sequence[JobUse]) -> bool:
    return all(job.end is not None for job in groups)


def _least_runtime(job: JobUse) -> float | None:
    return job.runtime_seconds if job.runtime_seconds_low is None else job.runtime_seconds_low


def _runtime(lives: Sequence[tuple[datetime | None, float | None]]) -> float | None:
    """How long at least one of them lived: a job that was put back into the queue does not run while it waits."""
    spans = sorted((began.timestamp(), seconds) for began, seconds in lives if began and seconds is not None)
    length, last = 0.0, -inf
    for start, seconds in spans:
        length += max(0.0, start + seconds - max(start, last))
        last = max(last, start + seconds)
    return length if spans else None


def _record_of(whole: JobUse, records: Sequence[Record]) -> Record | None:
    """What Slurm told of it; of clusters that number alike the one whose job ran then and there, or none of them."""
    mine = [record for record in records if record["user_name"] in (whole.user, None)]
    mine.sort(key=lambda record: record["user_name"] is None)
    for is_it in (_met, _had):
        if len({record["cluster_name"] for record in mine}) > 1:
            mine = [record for record in mine if is_it(whole, record)]
    return mine[0] if len({record["cluster_name"] for record in mine}) == 1 else None


def count_jobs(jobs: Iterable[JobUse]) -> int:
    """How many jobs: the rows of a batch job on several machines at the same time are one."""
    count = 0
    for rows in grouped(jobs, lambda job: (job.job_source, job.cluster, job.job, job.user)).values():
        spans = sorted((job.first, job.last) for job in rows if job.first and job.last)
        if rows[0].job_source != SLURM or not spans:
            count += len(rows)
            continue
        until = None
        for first, last in spans:
            count += until is None or first >= until
            until = last if until is None else max(until, last)
    return count


def over_machines(parts: Sequence[JobUse]) -> JobUse:
    """A batch job on all its machines together, without figures of one moment: no sample has them all."""
    whole = JobUse(hostname="all", **{name: getattr(parts[0], name) for name in _SAME})
    for name in _ADDED:
        setattr(whole, name, total(getattr(part, name) for part in parts))
    for name in ("cpu_seconds", "read_bytes", "write_bytes"):
        flag = "cpu_is_lower_bound" if name == "cpu_seconds" else "io_is_lower_bound"
        setattr(whole, flag, any(getattr(part, flag) for part in parts))
        for each, value in summed(name, flag, parts).items():
            setattr(whole, each, value)
    whole.started = min((part.started for part in parts if part.started), default=None)
    whole.first = min((part.first for part in parts if part.first), default=None)
    whole.last = max((part.last for part in parts if part.last), default=None)
    whole.steps = steps_over(parts)
    whole.ended = all(part.ended for part in parts)
    whole.runtime_seconds = _runtime([(part.started, part.runtime_seconds) for part in parts])
    if whole.cpu_seconds is not None and whole.runtime_seconds:
        whole.cores = Use(mean=whole.cpu_seconds / whole.runtime_seconds)
    return whole


_GRANTED = tuple(
    f"{when}_{what}" for when in ("requested", "allocated") for what in ("cpus", "memory_bytes", "gpus")
)
_SAME = ("job", "series_id", "job_source", "cluster", "array_task", "job_name", "job_state", "account", "project",
         "nodes", "time_limit_seconds", "queued_seconds", "user_id", "user", "program", "label", "command",
         *_GRANTED)  # fmt: skip
_ADDED = ("gpu_seconds", "memory_byte_seconds", "processes_seen")


def _met(job: JobUse, record: Record) -> bool:
    """Whether a job ran while Slurm says that it did; clocks of nodes differ a little."""
    start, end = record["start_time"], record["end_time"]
    if start is None or job.started is None or job.last is None:
        return False
    return bool(start <= job.last + _CLOCKS and (end is None or job.started <= end + _CLOCKS))


def _had(job: JobUse, record: Record) -> bool:
    """Whether the job had this machine, whose NodeName is taken to be its short host name."""
    host = (job.hostname or "").partition(".")[0]
    for item in _NODES.findall(record["node_names"] or ""):
        parts = _RANGES.split(item)
        found = re.fullmatch("([0-9]+)".join(map(re.escape, parts[::2])), host)
        if found is not None and all(map(_lies_in, found.groups(), parts[1::2])):
            return True
    return False


#: One name of a list such as r[1-2]c[01-10],gpu7; its ranges; and a range.
_NODES = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"\[([^\]]*)\]")
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def _lies_in(digits: str, ranges: str) -> bool:
    """Numbers are as long as the least of their span, or longer where they need to be."""
    return any(
        int(low) <= int(digits) <= int(high or low) and len(digits) == max(len(low), len(str(int(digits))))
        for low, high in _SPAN.findall(ranges)
    )


def summed(field: str, flag: str, jobs: Sequence[JobUse]) -> dict[str, float | None]:
    """The sum of a figure with its bounds; one job without an upper bound leaves none for all."""
    known = [job for job in jobs if getattr(job, field) is not None]
    if not known:
        return {}
    values = [getattr(job, field) for job in known]
    bounds = {}
    for side in ("low", "high"):
        found = [getattr(job, f"{field}_{side}") for job in known]
        bounds[side] = sum(
            value if bound is None else bound for value, bound in zip(values, found, strict=True)
        )
    is_bounded = all(getattr(job, f"{field}_high") is not None for job in known if getattr(job, flag))
    value = sum(values)
    return {
        field: value,
        f"{field}_low": bounds["low"] if bounds["low"] < value else None,
        f"{field}_high": bounds["high"] if is_bounded and bounds["high"] > value else None,
    }
