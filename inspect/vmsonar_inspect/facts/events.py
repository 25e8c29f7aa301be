"""Events and gaps: what happened, and what was not seen."""

from vmsonar_archive.read.findings import Code, Finding

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Gap, Happening
from vmsonar_inspect.facts.queries import Queries, Record, struct_of

# Too frequent to list; they are in the event table.
_COMMON = ("process_first_seen", "process_exit", "job_end")
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
}


def query_events(
    queries: Queries, names: dict[str, str | None], limits: dict[str, int]
) -> list[tuple[str, Happening]]:
    """The events of each archive in order, without the everyday ones; `limits` are those that containers reached."""
    marks = ", ".join(f"'{name}'" for name in _COMMON)
    rows = queries.rows(f"SELECT * FROM event WHERE event_type NOT IN ({marks}) ORDER BY time, seq")  # noqa: S608
    return [(row["archive"], _happening(row, names, limits)) for row in rows]


def _happening(row: Record, names: dict[str, str | None], limits: dict[str, int]) -> Happening:
    container = row["container_id"]
    subject = names.get(container or "") or (container and container[:12]) or row["gpu_uuid"]
    if subject is None and row["pgid"] is not None:
        subject = f"job {row['pgid']}"
    return struct_of(
        Happening,
        row,
        time=row["happened"] or row["time"],
        event=row["event_type"],
        what=_what(row, limits.get(container or "")),
        subject=subject,
    )


def _what(row: Record, limit: int | None) -> str:
    kind: str = row["event_type"]
    words = _WORDS.get(kind, kind.replace("_", " "))
    if row["event_type"] == "container_oom" and limit is not None:
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


def is_wrong(happening: Happening) -> bool:
    """Whether it belongs on the first screen."""
    bad_end = happening.event == "container_die" and happening.exit_code not in (None, 0)
    return bad_end or happening.event in WRONG


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
