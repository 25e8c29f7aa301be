"""How the jobs of each program, and the runs of each container, ended: how many failed, and how often in a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from vmsonar_inspect.facts.events import is_explained
from vmsonar_inspect.facts.model import ContainerUse, JobUse, ProgramEnds
from vmsonar_inspect.facts.programs import ProgramMap, without_library
from vmsonar_inspect.facts.queries import Record, grouped
from vmsonar_inspect.facts.statuses import CRASHES, KILL, Status, status_of

#: Programs that answer by their status, or pass on another's: for them it is no failure.
_ANSWER = frozenset(
    {"[", "cmp", "curl", "diff", "egrep", "expr", "false", "fgrep", "fuser", "grep", "killall", "lsof",
     "login", "man", "pgrep", "ping", "pidof", "pkill", "rg", "scp", "sftp", "ssh", "sshd", "sshd-auth",
     "sshd-session", "ssh-keyscan", "su", "sudo", "systemctl", "test", "timeout", "watch", "which", "xargs"}
)  # fmt: skip
#: Shells without a script are people, who leave with the status of their last command.
_SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "tcsh", "zsh"})


@dataclass(frozen=True, slots=True)
class _End:
    archive: str
    name: str
    time: datetime
    failed: bool
    seconds: float
    number: int = 1
    #: The sample that told it, of nameless children: when in its interval others ended well is not known.
    sample: datetime | None = None


def count_ends(
    events: Iterable[Record],
    good_ends: Iterable[Record],
    job_of: Callable[[Record], JobUse | None],
    programs: ProgramMap,
    boxes: Mapping[str, ContainerUse],
    is_wanted: Callable[[JobUse], bool],
) -> list[ProgramEnds]:
    """Programs and containers of which something failed, by archive; `good_ends` are those of nameless children."""
    found = []
    seen: set[str] = set()
    for row in events:
        job = job_of(row)
        if job is not None and not is_wanted(job):
            continue
        end = _end(row, job, programs, boxes.get(row["container_id"] or ""))
        # After its leader, the last member of a job is told of as well: that is the same end.
        if end is not None and (job is None or row["subject"] != "job" or job.series_id not in seen):
            found.append(end)
        if job is not None and row["subject"] == "job":
            seen.add(job.series_id)
    found += _good_ends(good_ends, {(end.archive, end.name) for end in found})
    summed = (_summed(ends) for ends in grouped(found, lambda end: (end.archive, end.name)).values())
    return [each for each in summed if each.failed]


def _end(row: Record, job: JobUse | None, programs: ProgramMap, box: ContainerUse | None) -> _End | None:
    status, program = status_of(row), row["program"] or ""
    if not status.is_known or program in _ANSWER:
        return None
    if row["event_type"] == "container_die":
        name = f"container {(box and box.name) or (row['container_id'] or '')[:12]}"
    elif row["event_type"] == "exit" and _counts(row, status, job):
        label = (job.label or job.program or "") if job is not None else programs.of(program).name
        name = _children(row) if _leads_nameless(row) else without_library(label)
    else:
        return None
    failed = status.is_failure and (status.by_signal != KILL or _is_explained(job, box))
    sample = row["time"] if _leads_nameless(row) else None
    return _End(row["archive"], name, status.time, failed, (row["runtime"] or 0) / 1e9, sample=sample)


def _is_explained(job: JobUse | None, box: ContainerUse | None) -> bool:
    """Whether somebody but a person is known to have killed it."""
    return bool(box and box.oom_kills) or is_explained(job) or is_explained(box)


def _counts(row: Record, status: Status, job: JobUse | None) -> bool:
    """Jobs count, and processes that crashed or were too short to become one: in a build most others fail by design."""
    if row["subject"] == "process":
        return status.signal in CRASHES or _leads_nameless(row)
    return row["subject"] == "job" and not (job is not None and _is_person(job.command))


def _leads_nameless(row: Record) -> bool:
    """Whether it led a group but lived too short for a name; what people and scripts type in shells is left out."""
    is_leader = row["subject"] == "process" and row["pid"] is not None and row["pid"] == row["pgid"]
    return is_leader and not row["program"] and (row["started_by"] or "bash") not in _SHELLS | _ANSWER


def _children(row: Record) -> str:
    return f"children of {row['started_by']}"


def _good_ends(rows: Iterable[Record], wanted: set[tuple[str, str]]) -> list[_End]:
    """Those of children of whom others failed."""
    return [
        _End(row["archive"], _children(row), row["time"], False, 0.0, int(row["exits"]), row["time"])
        for row in rows
        if (row["archive"], _children(row)) in wanted
    ]


def _is_person(command: str | None) -> bool:
    words = (command or "").split()
    return len(words) == 1 and words[0].rpartition("/")[2].removeprefix("-") in _SHELLS


def _summed(ends: list[_End]) -> ProgramEnds:
    failed = [end for end in ends if end.failed]
    row = _longest_row(ends)
    gaps = [(later.time - end.time).total_seconds() for end, later in pairwise(row)]
    return ProgramEnds(
        name=ends[0].name,
        archive=ends[0].archive,
        ended=sum(end.number for end in ends),
        failed=len(failed),
        failed_seconds=sum(end.seconds for end in failed),
        failed_in_a_row=len(row),
        failed_gap_seconds=median(gaps) if gaps else None,
    )


def _longest_row(ends: list[_End]) -> list[_End]:
    """The most failures without a success between."""
    longest: list[_End] = []
    row: list[_End] = []
    unsure = {end.sample for end in ends if not end.failed} - {None}
    for end in sorted(ends, key=lambda each: each.time):
        row = [*row, end] if end.failed and end.sample not in unsure else []
        longest = row if len(row) > len(longest) else longest
    return longest
