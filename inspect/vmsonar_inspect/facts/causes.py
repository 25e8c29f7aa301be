"""What may have ended a job or a container: the cause that the evidence points to, never a guess.

Proven is only what the kernel's own counters and signals leave no other reading for. What was merely near in time is
called so.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter

from vmsonar_inspect.facts import statuses, units
from vmsonar_inspect.facts.filesystems import Shortage
from vmsonar_inspect.facts.model import Ending
from vmsonar_inspect.facts.queries import Key, Record
from vmsonar_inspect.facts.statuses import Status, status_of

#: How long something that killed may have happened before the end, where both moments are exact.
AT_ONCE = timedelta(seconds=10)
_AT_NOTICE = timedelta(seconds=150)
_NOTICE_HOLDS = timedelta(minutes=30)
_RECENT = timedelta(seconds=60)
_NEAR = timedelta(seconds=2)
#: What part of its limit a user's tasks must be to be told of: between samples there may be more.
NEARLY = 0.9
#: How long the end of a container's first process may take, which ends all others by SIGKILL.
_SWEPT = timedelta(seconds=1)
#: Only these tell of every process that ends.
_TELL_ALL = ("connector", "accounts")
#: How services and sessions are asked to end.
_TO_GO = (statuses.TERM, statuses.HUP)
#: That ends were lost is said when it begins and in each segment while it lasts, but not when it is over.
_LOSS_LASTS = timedelta(hours=1)
#: Boot and number of a process group, or of a user.
Group = tuple[str, int]
#: In place of a group: what the kernel killed where no group counts it, and all ends by SIGKILL.
MACHINE = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why it ended, as far as that is known; the words follow those of the status, and call coincidences so."""

    kind: str
    words: str
    is_proven: bool = False
    is_coincidence: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """What ended, as far as causes ask."""

    container: str | None
    #: What names the control group that holds it: its container's id, or its own key.
    group: str | Key
    #: Boot and number of its user, and how many tasks such a one may have.
    user: Group | None = None
    ulimit: int | None = None
    #: Bytes that it is known to have written to a file system as that filled.
    wrote: Callable[[Shortage], float] = lambda _: 0.0

    @property
    def noun(self) -> str:
        return "control group" if self.container is None else "container"


@dataclass(slots=True)
class Evidence:
    """What one archive tells that may end something."""

    interval: timedelta
    #: Samples that came late, and how long after the one before.
    steps: dict[datetime, timedelta] = field(default_factory=dict)
    #: Why nobody tells of ends here, where that is so.
    silence: str = "how it ended was not recorded"
    #: Exits of jobs and their members, by process group.
    exits: dict[int, list[Record]] = field(default_factory=dict)
    #: Exits and deaths of containers, by id.
    deaths: dict[str, list[Record]] = field(default_factory=dict)
    #: Exits of jobs in containers, by the container's id.
    residents: dict[str, list[Record]] = field(default_factory=dict)
    #: The containers of each process group by boot and number, which may be used again.
    homes: dict[Group, list[str]] = field(default_factory=dict)
    #: Ends by SIGKILL by their container, by their process group, and all of them.
    kills: dict[str | Group, list[Status]] = field(default_factory=dict)
    #: Whether filters leave processes out, or only one command is recorded.
    is_partial: bool = False
    #: Samples in which more failed than were told one by one, and when ends began to be lost.
    counted: list[datetime] = field(default_factory=list)
    losses: list[datetime] = field(default_factory=list)
    #: How often containers, jobs that are alone in a control group, and the rest of the machine met their limits, and
    #: what an engine told of containers; `killed` are the times of the ends by SIGKILL that may be meant.
    rises: dict[str | Key, list[Record]] = field(default_factory=dict)
    ooms: dict[str | Key, list[Record]] = field(default_factory=dict)
    #: Samples whose kills groups tell, all of them.
    told_kills: set[datetime] = field(default_factory=set)
    starts: dict[str, datetime] = field(default_factory=dict)
    #: The limits of each of these, its peak, and the last sample of a container.
    boxes: dict[str | Key, Record] = field(default_factory=dict)
    #: How many tasks users had who came near what they may have.
    crowds: dict[Group, list[Record]] = field(default_factory=dict)
    notices: list[datetime] = field(default_factory=list)
    stops: list[tuple[datetime, str]] = field(default_factory=list)
    shortages: list[Shortage] = field(default_factory=list)

    def step(self, sample: datetime) -> timedelta:
        """From the sample before to this one."""
        return self.steps.get(sample, self.interval)

    def match_kills(self) -> None:
        """Notes with each count of the kernel's kills which ends by SIGKILL may be those."""
        for find, rows_of in ((_counted_about, self.rises), (_told_about, self.ooms)):
            for group, rows in rows_of.items():
                rows.sort(key=itemgetter("time"))
                for row in rows:
                    row["killed"] = set()
                for kill in self.kills.get(group if isinstance(group, str) else group[1:3], ()):
                    for row in find(self, kill, rows):
                        row["killed"].add(kill.time)


def judged(known: Evidence, status: Status, subject: Subject, members: Iterable[Status] = ()) -> Ending:
    """The end with the cause that has the strongest evidence."""
    cause = None if status.code == 0 else cause_of(known, status, subject, members)
    words = status.words
    if cause is not None:
        words += cause.words
    elif status.signal in (statuses.KILL, statuses.TERM):
        words += ", sender unknown"
    return Ending(
        words=words,
        exit_code=status.code,
        exit_signal=status.signal,
        core_dumped=status.core_dumped,
        source=status.source,
        cause=None if cause is None else cause.kind,
        is_proven=cause is not None and cause.is_proven,
        is_coincidence=cause is not None and cause.is_coincidence,
    )


def cause_of(
    known: Evidence, status: Status, subject: Subject, members: Iterable[Status] = ()
) -> Cause | None:
    """The first that is no coincidence, else the first."""
    first = None
    for cause in _causes(known, status, subject, members):
        if not cause.is_coincidence:
            return cause
        first = first or cause
    return first


def _causes(known: Evidence, status: Status, subject: Subject, members: Iterable[Status]) -> Iterator[Cause]:
    """What may have ended it, the strongest evidence of either sort first."""
    yield from _group_memory(known, status, subject)
    yield from _member(known, status, subject, members)
    # A request to end says nothing of what the program met.
    gave_up = status.by_signal in (None, statuses.ABRT, statuses.BUS)
    shortages = _shortages(known, status) if gave_up else []
    yield from _filled(shortages, status, subject)
    if gave_up:
        yield from _pids(known, status, subject)
        yield from _crowd(known, status, subject)
    yield from _beside(shortages, status)
    yield from _machine_memory(known, status, subject)
    if status.by_signal not in statuses.CRASHES:
        yield from _notice(known, status)
        yield from _shutdown(known, status)


def _member(known: Evidence, status: Status, subject: Subject, members: Iterable[Status]) -> Iterator[Cause]:
    """A member that a signal had ended just before its leader gave up; timeout(1) itself sends it."""
    if status.is_timeout:
        return
    for member in sorted(members, key=lambda each: each.time, reverse=True):
        passed = status.time - member.time
        # A container's first process takes all others with it, and they are told before it.
        is_swept = subject.container is not None and member.signal == statuses.KILL
        # Who gives up asks its helpers to go.
        if is_swept or member.signal is None or member.signal in statuses.ASKED or status.signal is not None:
            continue
        if timedelta(0) <= passed <= AT_ONCE:
            end = judged(known, member, subject)
            words = f", {_after(passed)} {member.who} in it ended: {end.words}"
            is_unexplained = end.cause is None or end.is_coincidence
            yield Cause("member", words, is_coincidence=member.signal == statuses.KILL and is_unexplained)


def _within(known: Evidence, status: Status, sample: datetime) -> bool:
    """Whether it ended in the interval before a sample, as far as its time is known; without memory all are late."""
    slack = _NEAR if status.is_exact else 3 * known.interval
    # A sample that takes seconds counts what happened after it began.
    until = status.time if status.told == sample else sample + slack
    # Where samples come late too, whoever was killed before the last one may have needed until now to end.
    if status.told in known.steps and status.told - known.steps[status.told] <= sample + timedelta(seconds=1):
        until = max(until, status.told)
    return sample - known.step(sample) - slack <= status.time <= until


def _counted_about(known: Evidence, status: Status, rows: list[Record]) -> Iterator[Record]:
    """Of samples in their order those in whose interval it ended."""
    slack = _NEAR if status.is_exact else 3 * known.interval
    first = status.time - slack
    if status.told is not None:
        first = min(first, status.told - known.steps.get(status.told, timedelta(0)) - timedelta(seconds=1))
    for place in range(bisect_left(rows, first, key=itemgetter("time")), len(rows)):
        sample = rows[place]["time"]
        if sample - known.step(sample) - slack > status.time:
            return
        if _within(known, status, sample):
            yield rows[place]


def _told_about(known: Evidence, status: Status, rows: list[Record]) -> list[Record]:
    """Of what an engine told in its order what was about then."""
    slack = AT_ONCE if status.is_exact else 3 * known.interval + AT_ONCE
    first, last = (
        bisect_left(rows, when, key=itemgetter("time")) for when in (status.time - slack, status.time + slack)
    )
    return rows[first:last]


def _group_memory(known: Evidence, status: Status, subject: Subject) -> Iterator[Cause]:
    """A kill in its container or its own control group, at its limit."""
    about = _counted_about(known, status, known.rises.get(subject.group, []))
    rises = [row for row in about if row["oom_kills"]]
    told = _told_about(known, status, known.ooms.get(subject.group, []))
    if not rises and not told:
        return
    kind, why = "memory_limit", _no_memory(known, subject)
    if is_limit_met(known.boxes.get(subject.group, {}), rises):
        why = f"its {subject.noun}'s limit of {units.size(known.boxes[subject.group]['memory_limit'])} was reached"
    elif subject.container is None:
        kind = "machine_memory"
    if status.by_signal == statuses.KILL:
        swept = _swept(known, status, subject)
        if _are_all(rises, swept) or _are_all(told, swept):
            yield Cause(kind, f" by the kernel, {why}", is_proven=_is_all_told(known, status))
            return
        if not rises and all(abs(status.time - row["time"]) > _NEAR for row in told):
            return  # another one ended right then
        yield Cause(kind, f", at the same time {_killed(subject)}: {why}", is_coincidence=True)
    elif status.by_signal is None:
        yield Cause(kind, f", as {_killed(subject)}: {why}")


def _killed(subject: Subject) -> str:
    return f"the kernel killed a process in its {subject.noun}"


def _are_all(rows: list[Record], swept: Set[datetime] = frozenset()) -> bool:
    """Whether no more ended by SIGKILL then than the kernel killed; what is told twice is so at one moment."""
    killed = {when for row in rows for when in row["killed"]} - swept
    return bool(rows) and len(killed) <= sum(row["oom_kills"] for row in rows)


def _swept(known: Evidence, status: Status, subject: Subject) -> Set[datetime]:
    """Whom the end of a container's first process took along, which is told after theirs."""
    deaths = map(status_of, known.deaths.get(subject.container or "", ()))
    if all(each.by_signal != statuses.KILL or abs(each.time - status.time) > _SWEPT for each in deaths):
        return set()
    kills = known.kills.get(subject.container or "", ())
    return {each.time for each in kills if timedelta(0) < status.time - each.time <= _SWEPT}


def _is_all_told(known: Evidence, status: Status) -> bool:
    """Whether every end by SIGKILL about then is known."""
    return (
        status.source in _TELL_ALL
        and not known.is_partial
        and not any(abs(each - status.time) <= 2 * known.interval for each in known.counted)
        and not any(-known.interval <= status.time - each <= _LOSS_LASTS for each in known.losses)
    )


def is_limit_met(box: Record, rises: Iterable[Record]) -> bool:
    most, peak = box.get("memory_limit"), box.get("memory_peak") or 0
    met = any(row["oom_events"] or row["memory_max_events"] for row in rises)
    return most is not None and (met or peak >= 0.9 * most)


def _no_memory(known: Evidence, subject: Subject) -> str:
    """Where memory was short if no limit is known to be met: its last figures were lost, or another one was."""
    most = known.boxes.get(subject.group, {}).get("memory_limit")
    where, its = "its container", ", whose limit is "
    if subject.container is None:
        where, its = "the machine or a control group", "; its own has a limit of "
    return f"for lack of memory in {where}" + (its + units.size(most) if most else "")


def _machine_memory(known: Evidence, status: Status, subject: Subject) -> Iterator[Cause]:
    """A kill by the kernel that no counter of a container or a job explains."""
    if status.by_signal not in (None, statuses.KILL):
        return
    for row in _counted_about(known, status, known.rises.get(MACHINE, [])):
        if status.signal == statuses.KILL and _are_all([row]) and _is_all_told(known, status):
            yield Cause("machine_memory", f" by the kernel, {_no_memory(known, subject)}", is_proven=True)
        else:
            several = "a process" if row["oom_kills"] == 1 else f"{row['oom_kills']} processes"
            words = f", at the same time the kernel killed {several} for lack of memory"
            yield Cause("machine_memory", words, is_coincidence=True)


def _notice(known: Evidence, status: Status) -> Iterator[Cause]:
    """Who clears a machine asks; SIGKILL may follow, but the kernel's and anybody's looks the same."""
    asked = status.by_signal in _TO_GO
    for when in reversed(known.notices):
        passed = status.time - when
        if timedelta(seconds=-5) <= passed <= (_NOTICE_HOLDS if asked else _AT_NOTICE):
            near = "at" if passed <= _AT_NOTICE else f"{units.duration(passed.total_seconds())} after"
            words = f", {near if asked else 'at the same time as'} the reclaim notice of {when:%H:%M} UTC"
            yield Cause("reclaim_notice", words, is_coincidence=not asked)


def _shutdown(known: Evidence, status: Status) -> Iterator[Cause]:
    asked = status.by_signal in _TO_GO
    longest = AT_ONCE if status.is_exact else AT_ONCE + known.interval
    for when, goal in known.stops:
        if -longest <= status.time - when <= known.interval:
            yield Cause(
                "shutdown",
                f" at {goal}" if asked else f", at the same time as the {goal}",
                is_coincidence=not asked,
            )


def _shortages(known: Evidence, status: Status) -> list[Shortage]:
    """The file systems without room, or turned read-only, when it ended; the newest shortage first."""
    # Room is asked for at every sample, the table of mounts every ten seconds at least.
    more = {"read_only": timedelta(seconds=1) + AT_ONCE}
    found = [
        each
        for each in known.shortages
        if each.holds(status.time, known.step(each.since) + more.get(each.kind, timedelta(seconds=1)))
    ]
    return sorted(found, key=lambda each: abs(status.time - each.since))


def _filled(shortages: Iterable[Shortage], status: Status, subject: Subject) -> Iterator[Cause]:
    """A file system that had just become full, or was found so just after, with its own writing or signal to speak."""
    for each in shortages:
        passed = status.time - each.since
        if each.kind != "disk_full" or not status.is_exact or passed > _RECENT:
            continue
        words = f", {'as' if passed < timedelta(0) else _after(passed)} {each.words()}"
        if wrote := subject.wrote(each):
            yield Cause(each.kind, f"{words}; it had just written {units.size(wrote)}")
        elif status.by_signal == statuses.BUS:  # what a mapped file without room brings about
            yield Cause(each.kind, words)


def _beside(shortages: Iterable[Shortage], status: Status) -> Iterator[Cause]:
    """A shortage of which nothing but the time speaks."""
    for each in shortages:
        passed = abs(status.time - each.since)
        is_new = passed <= _RECENT
        lasting = "" if is_new else f", for {units.duration(passed.total_seconds())} by then"
        words = f", at the same time {each.words(is_new)}{lasting}"
        yield Cause(each.kind, words, is_coincidence=True)


def _pids(known: Evidence, status: Status, subject: Subject) -> Iterator[Cause]:
    """A fork that the limit of its container or control group refused, a little before the end at most."""
    limit = units.count(known.boxes.get(subject.group, {}).get("processes_limit"))
    for row in reversed(known.rises.get(subject.group, [])):
        passed = status.time - row["time"]
        is_near = _within(known, status, row["time"])
        if row["pids_max_events"] and (is_near or timedelta(0) <= passed <= AT_ONCE):
            when = "as" if is_near else _after(passed)
            yield Cause("pids_limit", f", {when} its {subject.noun}'s limit of {limit} processes was reached")


def _crowd(known: Evidence, status: Status, subject: Subject) -> Iterator[Cause]:
    """Its user had all the tasks that it may have, or nearly; whether a fork was refused nobody counts."""
    rows = known.crowds.get(subject.user, []) if subject.user and subject.ulimit else []
    for row in _counted_about(known, status, rows):
        if row["tasks"] >= NEARLY * (subject.ulimit or 0):
            count = f"{units.count(row['tasks'])} of {units.count(subject.ulimit)}"
            words = f", at the same time its user had {count} tasks that it may have (ulimit -u)"
            yield Cause("user_tasks", words, is_coincidence=True)


def _after(passed: timedelta) -> str:
    seconds = passed.total_seconds()
    return "less than a second after" if seconds < 1 else f"{units.duration(seconds)} after"
