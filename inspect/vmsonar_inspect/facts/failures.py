"""How the jobs of each program, and the runs of each container, ended: how many failed, and how often in a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from vmsonar_inspect.facts.model import JobUse, ProgramEnds
from vmsonar_inspect.facts.programs import ProgramMap
from vmsonar_inspect.facts.queries import Record, grouped
from vmsonar_inspect.facts.statuses import CRASHES, Status, status_of

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


def count_ends(
    events: Iterable[Record],
    job_of: Callable[[Record], JobUse | None],
    programs: ProgramMap,
    names: Mapping[str, str | None],
    is_wanted: Callable[[JobUse], bool],
) -> list[ProgramEnds]:
    """Programs and containers of which something failed, by archive."""
    found = []
    seen: set[str] = set()
    for row in events:
        job = job_of(row)
        if job is not None and not is_wanted(job):
            continue
        end = _end(row, job, programs, names)
        # After its leader, the last member of a job is told of as well: that is the same end.
        if end is not None and (job is None or row["subject"] != "job" or job.series_id not in seen):
            found.append(end)
        if job is not None and row["subject"] == "job":
            seen.add(job.series_id)
    summed = (_summed(ends) for ends in grouped(found, lambda end: (end.archive, end.name)).values())
    return [each for each in summed if each.failed]


def _end(
    row: Record, job: JobUse | None, programs: ProgramMap, names: Mapping[str, str | None]
) -> _End | None:
    status, program = status_of(row), row["program"] or ""
    if not status.is_known or program in _ANSWER:
        return None
    if row["event_type"] == "container_die":
        name = f"container {names.get(row['container_id']) or (row['container_id'] or '')[:12]}"
    elif row["event_type"] == "exit" and _counts(row, status, job):
        name = (job.program if job is not None else None) or programs.of(program).name
    else:
        return None
    return _End(row["archive"], name, status.time, status.is_failure, (row["runtime"] or 0) / 1e9)


def _counts(row: Record, status: Status, job: JobUse | None) -> bool:
    """Jobs count, and processes that crashed: in a build most others fail by design."""
    if row["subject"] == "process":
        return status.signal in CRASHES
    return row["subject"] == "job" and not (job is not None and _is_person(job.command))


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
        ended=len(ends),
        failed=len(failed),
        failed_seconds=sum(end.seconds for end in failed),
        failed_in_a_row=len(row),
        failed_gap_seconds=median(gaps) if gaps else None,
    )


def _longest_row(ends: list[_End]) -> list[_End]:
    """The most failures without a success between."""
    longest: list[_End] = []
    row: list[_End] = []
    for end in sorted(ends, key=lambda each: each.time):
        row = [*row, end] if end.failed else []
        longest = row if len(row) > len(longest) else longest
    return longest
