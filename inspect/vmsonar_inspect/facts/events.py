"""Events and gaps: what happened, and what was not seen."""

from collections.abc import Iterable

from vmsonar_archive.read.findings import Code, Finding

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import ContainerUse, Ending, Gap, Happening, JobUse
from vmsonar_inspect.facts.queries import Queries, Record, struct_of
from vmsonar_inspect.facts.statuses import CRASHES, KILL, Status, status_of

# Each type with its kind and its words.
_EVENTS = {
    "exit": ("exit", "exit"),
    "exits_counted": ("exit", "exits counted"),
    "oom_kill": ("oom", "the kernel killed a process for lack of memory"),
    "container_oom": ("oom", "the container ran out of memory"),
    "container_create": ("container", "the container was created"),
    "container_start": ("container", "the container started"),
    "container_die": ("container", "the container ended"),
    "container_health": ("container", "the container's health changed"),
    "gpu_xid": ("gpu", "the GPU driver reported an error"),
    "gpu_lost": ("gpu", "the GPU was lost"),
    "gpu_found": ("gpu", "a GPU appeared"),
    "boot_end": ("machine", "the boot before ended"),
    "teardown_notice": ("machine", "the machine was told to go"),
    "clock_step": ("machine", "the clock was set"),
    "resume": ("machine", "the machine slept"),
    "identity_change": ("machine", "the machine changed its identity"),
    "daemon_start": ("recorder", "recording started"),
    "daemon_stop": ("recorder", "recording stopped"),
    "config_reload": ("recorder", "the configuration was read again"),
    "process_first_seen": ("process", "process first seen"),
    "process_exit": ("process", "process exit"),
    "job_end": ("process", "the job ended"),
}
#: Kinds of events by type; people filter by either.
KINDS = {name: kind for name, (kind, _) in _EVENTS.items()}
#: Too frequent to list unless somebody asks for them by their type.
COMMON = ("process_first_seen", "process_exit", "job_end", "exits_counted")
#: Events that mean that something went wrong.
WRONG = frozenset({"oom_kill", "container_oom", "gpu_xid", "gpu_lost", "teardown_notice", "clock_step"})


def query_event_rows(queries: Queries, more: Iterable[str] = ()) -> list[Record]:
    """The events in order, without the everyday ones but for these; failures that are only counted stay."""
    left_out = [name for name in COMMON if name not in more]
    marks = ", ".join(f"'{name}'" for name in left_out) or "''"
    return queries.rows(
        f"SELECT * FROM event WHERE event_type NOT IN ({marks}) "  # noqa: S608
        "OR (event_type = 'exits_counted' AND exit_code IS NULL) ORDER BY time, seq"
    )


def query_good_ends(queries: Queries) -> list[Record]:
    """How many children of whom ended well without a name, by sample."""
    return queries.rows(
        "SELECT archive, time, started_by, exits FROM event "
        "WHERE event_type = 'exits_counted' AND exit_code = 0 AND started_by IS NOT NULL"
    )


def happening(row: Record, job: JobUse | None, box: ContainerUse | None) -> Happening:
    """An event as people read it, with the job and the container that it concerns."""
    container = row["container_id"]
    subject = (box and box.name) or (container and container[:12]) or row["gpu_uuid"]
    if subject is None and row["pgid"] is not None:
        subject = f"job {row['pgid']}" if job is None else f"job {job.job}"
    return struct_of(
        Happening,
        row,
        time=row["happened"] or row["time"],
        event=row["event_type"],
        kind=KINDS.get(row["event_type"]),
        what=_what(row, job, box),
        subject=subject,
        program=row["program"] or (job.program if job is not None and row["subject"] != "process" else None),
        job=job and job.job,
        job_series_id=job and job.series_id,
    )


def _what(row: Record, job: JobUse | None, box: ContainerUse | None) -> str:
    kind: str = row["event_type"]
    words = _EVENTS[kind][1] if kind in _EVENTS else kind.replace("_", " ")
    if kind == "exit":
        status = status_of(row)
        words = _told(status, job if row["subject"] == "job" else None)
        return f"{status.who} ended: {words}" if row["subject"] == "process" else words
    if kind == "exits_counted":
        how = "with exit 0" if row["exit_code"] == 0 else "that failed, beyond those told one by one"
        return f"{units.plural(row['exits'] or 0, 'end')} {how}"
    if kind == "container_oom" and box is not None:
        return _short_of_memory(box)
    if kind == "container_die" and row["exit_code"] is not None:
        return f"{words}: {_told(status_of(row), box)}"
    if row["event_type"] == "gpu_xid" and row["code"] is not None:
        return f"{words} (XID {row['code']})"
    if row["event_type"] in ("boot_end", "daemon_stop") and row.get("reason") is not None:
        return f"{words}: {row['reason'].replace('_', ' ')}"
    if row["event_type"] in ("clock_step", "resume") and row["amount"] is not None:
        return f"{words} ({row['amount'] / 1e9:+.1f} s)"
    return words


def _short_of_memory(box: ContainerUse) -> str:
    """No more than is known: whether the limit was met may have happened after its last row."""
    limit = "" if box.memory_limit_bytes is None else units.size(box.memory_limit_bytes)
    if box.killed_at_limit:
        return f"the container reached its memory limit of {limit}"
    words = "a process in it was killed for lack of memory"
    return f"{words} (limit {limit})" if limit else words


def _told(status: Status, subject: JobUse | ContainerUse | None) -> str:
    """The whole sentence for what ended a job or a container where it is of this end, else the status."""
    told = Ending() if subject is None else subject.ending
    same = (told.exit_code, told.exit_signal) == (status.code, status.signal)
    return told.words if same and told.words else status.words


def is_everyday(event: Happening) -> bool:
    """A member that ended with a code: in shells and builds most fail by design, by the hundred."""
    is_member = event.event == "exit" and event.pid is not None and event.pid != event.pgid
    return is_member and event.exit_signal is None


def is_wrong(event: Happening, job: JobUse | None, box: ContainerUse | None) -> bool:
    """Whether it belongs on the first screen; ends that were asked for and short attempts do not."""
    if event.event == "exit":
        if event.pid is not None and event.pid != event.pgid:
            return False  # a member: its job's own sentence tells of it
        return event.exit_code != 0 and job is not None and _is_bad_end(job)
    if event.event == "boot_end":
        return event.what is not None and event.what.endswith("no farewell")
    if event.event == "container_die":
        status = Status(event.time, code=event.exit_code)
        return status.is_failure and (status.by_signal != KILL or is_explained(box))
    return event.event in WRONG


def is_explained(subject: JobUse | ContainerUse | None) -> bool:
    """Whether evidence says why it ended: what nobody explains may have been asked for, as by `docker stop`."""
    told = Ending() if subject is None else subject.ending
    return told.cause not in (None, "shutdown") and not told.is_coincidence


# A command that fails at once is somebody trying something out.
_WORTH_TELLING = 60.0


def _is_bad_end(job: JobUse) -> bool:
    end = job.ending
    if is_explained(job):
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
