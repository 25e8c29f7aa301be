"""Events and gaps: what happened, and what was not seen."""

from collections.abc import Iterable, Mapping

from vmsonar_archive.read.findings import Code, Finding

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Gap, Happening, JobUse
from vmsonar_inspect.facts.queries import Queries, Record, struct_of
from vmsonar_inspect.facts.statuses import CRASHES, status_of

#: Kinds of events by type; people filter by either.
KINDS = {
    **dict.fromkeys(("exit", "exits_counted"), "exit"),
    **dict.fromkeys(("oom_kill", "container_oom"), "oom"),
    **dict.fromkeys(
        ("container_create", "container_start", "container_die", "container_health"), "container"
    ),
    **dict.fromkeys(("gpu_xid", "gpu_lost", "gpu_found"), "gpu"),
    **dict.fromkeys(("boot_end", "teardown_notice", "clock_step", "resume", "identity_change"), "machine"),
    **dict.fromkeys(("daemon_start", "daemon_stop", "config_reload"), "recorder"),
    **dict.fromkeys(("process_first_seen", "process_exit", "job_end"), "process"),
}
#: Too frequent to list unless somebody asks for them by their type.
COMMON = ("process_first_seen", "process_exit", "job_end", "exits_counted")
#: Events that mean that something went wrong.
WRONG = frozenset({"oom_kill", "container_oom", "gpu_xid", "gpu_lost", "teardown_notice", "clock_step"})

_WORDS = {
    "oom_kill": "the kernel killed a process for lack of memory",
    "container_oom": "the container ran out of memory",
    "container_die": "the container ended",
    "container_start": "the container started",
    "container_create": "the container was created",
    "gpu_xid": "the GPU driver reported an error",
    "gpu_lost": "the GPU was lost",
    "gpu_found": "a GPU appeared",
    "clock_step": "the clock was set",
    "resume": "the machine slept",
    "daemon_start": "recording started",
    "daemon_stop": "recording stopped",
    "teardown_notice": "the machine was told to go",
    "boot_end": "the boot before ended",
    "identity_change": "the machine changed its identity",
    "config_reload": "the configuration was read again",
    "container_health": "the container's health changed",
    "job_end": "the job ended",
}


def query_event_rows(queries: Queries, more: Iterable[str] = ()) -> list[Record]:
    """The events in order, without the everyday ones but for these; failures that are only counted stay."""
    left_out = [name for name in COMMON if name not in more]
    marks = ", ".join(f"'{name}'" for name in left_out) or "''"
    return queries.rows(
        f"SELECT * FROM event WHERE event_type NOT IN ({marks}) "  # noqa: S608
        "OR (event_type = 'exits_counted' AND exit_code IS NULL) ORDER BY time, seq"
    )


def happening(
    row: Record, names: Mapping[str, str | None], job: JobUse | None, limits: Mapping[str, int]
) -> Happening:
    """An event as people read it; the job is that which it concerns, `limits` are those that containers reached."""
    container = row["container_id"]
    subject = names.get(container or "") or (container and container[:12]) or row["gpu_uuid"]
    if subject is None and row["pgid"] is not None:
        subject = f"job {row['pgid']}" if job is None else f"job {job.job}"
    return struct_of(
        Happening,
        row,
        time=row["happened"] or row["time"],
        event=row["event_type"],
        kind=KINDS.get(row["event_type"]),
        what=_what(row, job, limits.get(container or "")),
        subject=subject,
        program=row["program"] or (job.program if job is not None and row["subject"] != "process" else None),
        job=job and job.job,
        job_series_id=job and job.series_id,
    )


def _what(row: Record, job: JobUse | None, limit: int | None) -> str:
    kind: str = row["event_type"]
    words = _WORDS.get(kind, kind.replace("_", " "))
    if kind == "exit":
        return _exit_words(row, job)
    if kind == "exits_counted":
        how = "with exit 0" if row["exit_code"] == 0 else "that failed, beyond those told one by one"
        return f"{units.plural(row['exits'] or 0, 'end')} {how}"
    if kind == "container_oom" and limit is not None:
        return f"the container reached its memory limit of {units.size(limit)}"
    if row["event_type"] == "container_die" and row["exit_code"] is not None:
        return f"{words} with exit code {row['exit_code']}"
    if row["event_type"] == "gpu_xid" and row["code"] is not None:
        return f"{words} (XID {row['code']})"
    if row["event_type"] in ("boot_end", "daemon_stop") and row.get("reason") is not None:
        return f"{words}: {row['reason'].replace('_', ' ')}"
    if row["event_type"] in ("clock_step", "resume") and row["amount"] is not None:
        return f"{words} ({row['amount'] / 1e9:+.1f} s)"
    return words


def _exit_words(row: Record, job: JobUse | None) -> str:
    """The whole sentence for what ended a job, the status for a process."""
    status = status_of(row)
    told = job.ending if job is not None and row["subject"] == "job" else None
    same = told is not None and (told.exit_code, told.exit_signal) == (status.code, status.signal)
    words = told.words if told is not None and same and told.words else status.words
    return f"{status.who} ended: {words}" if row["subject"] == "process" else words


def is_wrong(event: Happening, job: JobUse | None) -> bool:
    """Whether it belongs on the first screen; ends that were asked for and short attempts do not."""
    if event.event == "exit":
        if event.pid is not None and event.pid != event.pgid:
            return False  # a member: its job's own sentence tells of it
        return event.exit_code != 0 and job is not None and _is_bad_end(job)
    if event.event == "boot_end":
        return event.what is not None and event.what.endswith("no farewell")
    bad_end = event.event == "container_die" and event.exit_code not in (None, 0)
    return bad_end or event.event in WRONG


# A command that fails at once is somebody trying something out.
_WORTH_TELLING = 60.0


def _is_bad_end(job: JobUse) -> bool:
    end = job.ending
    if end.cause is not None and end.cause != "shutdown" and not end.is_coincidence:
        return True
    if end.exit_signal is not None:
        return end.exit_signal in CRASHES
    return end.exit_code not in (None, 0) and (job.runtime_seconds or 0.0) >= _WORTH_TELLING


_HOLES = """
    SELECT 'no_samples' AS kind, archive, since AS begin, until_time AS "end", seconds, reason
    FROM coverage_gaps ORDER BY since"""
_BLIND = """
    SELECT 'not_read' AS kind, archive, collector, reason, arg_min(detail, time) AS detail,
        MIN(COALESCE(since, time)) AS begin, MAX(time) AS "end", COUNT(*) AS times, SUM(lost) AS samples_lost
    FROM gap GROUP BY archive, collector, reason ORDER BY begin, collector, reason"""


def query_gaps(queries: Queries) -> list[tuple[str, Gap]]:
    """Time without samples, and what could not be read, per archive."""
    rows = queries.rows(_HOLES) + queries.rows(_BLIND)
    return [(row["archive"], struct_of(Gap, row)) for row in rows]


def damage(finding: Finding) -> Gap:
    """A gap for something that was recorded and can no longer be read."""
    return Gap(kind="damage", reason=str(finding.code), detail=f"{finding.path}: {finding.detail}")


def is_damage(finding: Finding) -> bool:
    return finding.code not in (Code.TORN_TAIL, Code.UNSEALED, Code.PENDING, Code.REPEATED)
