"""What ended a job or a container: its status, and the cause that the evidence points to, never a guess.

Proven is only what the kernel's own counters and signals leave no other reading for. What was merely near in time is
called so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter

from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import statuses, units
from vmsonar_inspect.facts.filesystems import FILLING, Shortage, query_shortages
from vmsonar_inspect.facts.model import ContainerUse, Ending, JobUse
from vmsonar_inspect.facts.queries import LIMIT_RISES, Key, Queries, Record, grouped, key_of, names_of
from vmsonar_inspect.facts.statuses import Status, status_of

RUNNING = "still running at the last sample"
_NOT_RECORDED = "how it ended was not recorded"

#: How long something that killed may have happened before the end, where both moments are exact.
_AT_ONCE = timedelta(seconds=10)
_AT_NOTICE = timedelta(seconds=150)
_NOTICE_HOLDS = timedelta(minutes=30)
_SHUTDOWN = timedelta(seconds=60)
_RECENT = timedelta(seconds=60)
#: Who wrote at least this part of what filled a file system, and not many times as much, wrote there.
_PART = 0.1
_GOING_DOWN = {
    **dict.fromkeys(("poweroff", "halt"), "shutdown"),
    **dict.fromkeys(("reboot", "kexec", "soft_reboot"), "reboot"),
}
#: Whose exit is that of a whole job; `vmsonar run` waits for its command itself.
_WHOLE = ("job", "run")
#: Only these tell of every process that ends.
_TELL_ALL = ("connector", "accounts")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why it ended, as far as that is known; the words follow those of the status."""

    kind: str
    words: str
    is_proven: bool = False
    is_coincidence: bool = False


@dataclass(frozen=True, slots=True)
class _Subject:
    """What ended, as far as causes ask."""

    container: str | None = None
    #: What names the control group that holds it: its container's id, or its own key.
    group: str | Key = ""
    #: Bytes that it is known to have written to a file system as that filled.
    wrote: Callable[[Shortage], float] = lambda _: 0.0

    @property
    def noun(self) -> str:
        return "control group" if self.container is None else "container"


@dataclass(slots=True)
class _Evidence:
    """What one archive tells that may end something."""

    interval: timedelta
    #: Samples that came late, and how long after the one before.
    steps: dict[datetime, timedelta] = field(default_factory=dict)
    #: Why nobody tells of ends here, where that is so.
    silence: str = _NOT_RECORDED
    #: Exits of jobs and their members, by process group.
    exits: dict[int, list[Record]] = field(default_factory=dict)
    #: Exits and deaths of containers, by id.
    deaths: dict[str, list[Record]] = field(default_factory=dict)
    #: Exits of jobs in containers, by the container's id.
    residents: dict[str, list[Record]] = field(default_factory=dict)
    kills: list[Status] = field(default_factory=list)
    counted: list[datetime] = field(default_factory=list)
    ooms: dict[str, list[datetime]] = field(default_factory=dict)
    #: How often containers, and jobs in no container but alone in a control group, met their limits.
    rises: dict[str | Key, list[Record]] = field(default_factory=dict)
    starts: dict[str, datetime] = field(default_factory=dict)
    #: The limits of each of these, its peak, and the last sample of a container.
    boxes: dict[str | Key, Record] = field(default_factory=dict)
    machine_kills: list[Record] = field(default_factory=list)
    notices: list[datetime] = field(default_factory=list)
    stops: list[tuple[datetime, str]] = field(default_factory=list)
    shortages: list[Shortage] = field(default_factory=list)

    def step(self, sample: datetime) -> timedelta:
        """From the sample before to this one."""
        return self.steps.get(sample, self.interval)


class Ends:
    """Judges the ends of all jobs and containers that were opened together."""

    def __init__(
        self, queries: Queries, events: Iterable[Record], intervals: Mapping[str, float | None]
    ) -> None:
        self._queries = queries
        self._of = {
            archive: _Evidence(timedelta(seconds=interval or 10.0)) for archive, interval in intervals.items()
        }
        for archive, rows in grouped(events, itemgetter("archive")).items():
            _sort_in(self._of[archive], rows)
        for row in queries.rows(_SILENCES):
            self._of[row["archive"]].silence = row["detail"].partition(":")[0]
        if queries.has("container"):
            for row in queries.rows(_RISES):
                self._of[row["archive"]].rises.setdefault(row["container_id"], []).append(row)
            for row in queries.rows(_BOXES):
                self._of[row["archive"]].boxes[row["container_id"]] = row
        for key, rises in grouped(queries.rows(_JOB_RISES), key_of).items():
            self._of[key[0]].rises[key] = rises
        for row in queries.rows(_JOB_BOXES):
            self._of[row["archive"]].boxes[key_of(row)] = row
        queries.require_node_steps()
        for row in queries.rows(_LATE):
            self._of[row["archive"]].steps[row["time"]] = timedelta(seconds=row["interval_seconds"])
        for row in queries.rows(_MACHINE_KILLS):
            self._of[row["archive"]].machine_kills.append(row)
        for archive, shortages in (query_shortages(queries) if queries.has("filesystem") else {}).items():
            self._of[archive].shortages = shortages

    def of_job(self, key: Key, job: JobUse) -> Ending:
        """How a job ended; nothing of what is no one job."""
        known = self._of[key[0]]
        if not job.is_one_job:
            return Ending()
        told = [row for row in known.exits.get(key[2], ()) if _is_of(row, key, job, known.interval)]
        own = [status_of(row) for row in told if row["subject"] in _WHOLE]
        if not job.ended:
            return Ending(words=RUNNING + (f"; its leader ended: {own[0].words}" if own else ""))
        if not own:
            return self._untold(known, job, key)
        members = [status_of(row) for row in told if row["subject"] == "process"]
        subject = _Subject(
            job.container_id, job.container_id or key, lambda shortage: self._written(key, job, shortage)
        )
        ending = self._judged(known, own[0], subject, members)
        last = own[-1]
        if last.time - own[0].time > timedelta(seconds=1):
            later = units.duration((last.time - own[0].time).total_seconds())
            return replace_words(ending, f"{ending.words}; its last member ended {later} later: {last.words}")
        return ending

    def _written(self, key: Key, job: JobUse, shortage: Shortage) -> float:
        """What a job wrote as a file system filled; 0 where that is no fair part of what filled it, or not known."""
        fell = shortage.fell or 0.0
        if not fell or (job.write_bytes or 0.0) < _PART * fell:
            return 0.0
        span = {"since": shortage.since - FILLING, "until": shortage.since + self._of[key[0]].interval}
        (row,) = self._queries.rows(_WRITTEN, **names_of(key), **span)
        written = float(row["written"] or 0.0)
        return written if _PART * fell <= written <= fell / _PART else 0.0

    def _untold(self, known: _Evidence, job: JobUse, key: Key) -> Ending:
        """The end of a job of which nobody told the status: that of its container, or what was near."""
        moment, untold = job.end or job.last, f"not known: {plain(known.silence)}"
        if moment is None:
            return Ending(words=untold)
        subject = _Subject(job.container_id, job.container_id or key)
        for row in reversed(known.deaths.get(job.container_id or "", ())):
            status = status_of(row)
            if status.is_known and abs(status.time - moment) <= 3 * known.interval + _AT_ONCE:
                ending = self._judged(known, status, subject)
                return replace_words(ending, f"its container ended: {ending.words}")
        status = Status(moment, is_exact=job.end is not None)
        cause = next(self._causes(known, status, subject, ()), None)
        if cause is None:
            return Ending(words=untold)
        words = f"{untold}; {cause.words.removeprefix(', ')}"
        return Ending(words=words, cause=cause.kind, is_coincidence=cause.is_coincidence)

    def of_container(self, container: ContainerUse) -> Ending:
        """How a container ended, the last time it did; nothing where it is not known to have ended."""
        known = self._of[container.archive or ""]
        found = [status_of(row) for row in known.deaths.get(container.container_id, ())]
        if not found or self._goes_on(known, container.container_id, found[-1].time):
            return Ending()
        # The kernel tells a signal where the engine has a number for it.
        near = [each for each in found if each.is_known and found[-1].time - each.time <= known.interval]
        first = None if near else _first_process(known, container.container_id, found[-1].time)
        last = near[-1] if near else first or found[-1]
        status = next((each for each in near if each.signal is not None), last)
        return self._judged(known, status, _Subject(container.container_id, container.container_id))

    def _goes_on(self, known: _Evidence, container: str, death: datetime) -> bool:
        """Whether it was started again. The row of an end may come late and is no sample of a life."""
        started, seen = known.starts.get(container), known.boxes.get(container, {}).get("last_alive")
        return (started is not None and started > death) or (
            seen is not None and seen > death + known.interval
        )

    def _judged(
        self, known: _Evidence, status: Status, subject: _Subject, members: Iterable[Status] = ()
    ) -> Ending:
        cause = None if status.code == 0 else next(self._causes(known, status, subject, members), None)
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

    def _causes(
        self, known: _Evidence, status: Status, subject: _Subject, members: Iterable[Status]
    ) -> Iterator[Cause]:
        """What may have ended it, the strongest evidence first."""
        yield from _group_memory(known, status, subject)
        yield from self._member(known, status, subject, members)
        # A request to end says nothing of what the program met.
        if status.by_signal in (None, statuses.ABRT, statuses.BUS):
            shortages = _shortages(known, status)
            yield from _filled(shortages, status, subject)
            yield from _pids(known, status, subject)
            yield from _beside(shortages, status)
        yield from _machine_memory(known, status, subject)
        if status.by_signal not in statuses.CRASHES:
            yield from _notice(known, status)
            yield from _shutdown(known, status)

    def _member(
        self, known: _Evidence, status: Status, subject: _Subject, members: Iterable[Status]
    ) -> Iterator[Cause]:
        """A member that a signal had ended just before its leader gave up."""
        for member in sorted(members, key=lambda each: each.time, reverse=True):
            passed = status.time - member.time
            # A container's first process takes all others with it, and they are told before it.
            is_swept = subject.container is not None and member.signal == statuses.KILL
            if is_swept or member.signal is None or status.signal is not None:
                continue
            if timedelta(0) <= passed <= _AT_ONCE:
                words = self._judged(known, member, subject).words
                yield Cause("member", f", {_after(passed)} {member.who} in it ended: {words}")


def replace_words(ending: Ending, words: str) -> Ending:
    """The same end in other words."""
    return Ending(**{name: getattr(ending, name) for name in Ending.__struct_fields__} | {"words": words})


def _sort_in(known: _Evidence, rows: list[Record]) -> None:
    """Puts each event where it is looked for."""
    for row in rows:
        kind, when, container = row["event_type"], row["happened"] or row["time"], row["container_id"] or ""
        if kind == "container_die" or (kind == "exit" and row["subject"] == "container"):
            known.deaths.setdefault(container, []).append(row)
        elif kind == "exit" and row["pgid"] is not None:
            known.exits.setdefault(row["pgid"], []).append(row)
            if container and row["subject"] == "job":
                known.residents.setdefault(container, []).append(row)
        elif kind == "exits_counted" and row["exit_code"] is None:
            known.counted.append(row["time"])
        elif kind == "container_start":
            known.starts[container] = when
        elif kind == "container_oom":
            known.ooms.setdefault(container, []).append(when)
        elif kind == "teardown_notice":
            known.notices.append(when)
        elif kind == "daemon_stop" and row["reason"] in _GOING_DOWN:
            known.stops.append((when, _GOING_DOWN[row["reason"]]))
        if kind == "exit" and row["exit_signal"] == statuses.KILL:
            known.kills.append(status_of(row))


def _first_process(known: _Evidence, container: str, death: datetime) -> Status | None:
    """How the oldest job of a container ended, where no engine tells: the container ends with its first process."""
    rows = [
        row
        for row in known.residents.get(container, ())
        if abs((row["happened"] or row["time"]) - death) <= known.interval + timedelta(seconds=1)
    ]
    return status_of(min(rows, key=lambda row: row["start_ticks"] or 0)) if rows else None


def _is_of(row: Record, key: Key, job: JobUse, interval: timedelta) -> bool:
    """Whether an exit is of this job and not of another that had its number."""
    if row["boot"] != key[1]:
        return False
    if row["subject"] in _WHOLE and row["start_ticks"] is not None:
        return bool(row["start_ticks"] == key[3])
    begin, end = job.started or job.first, job.end or job.last
    when = row["happened"] or row["time"]
    return begin is not None and end is not None and begin - interval <= when <= end + interval


def _within(known: _Evidence, status: Status, sample: datetime) -> bool:
    """Whether it ended in the interval before a sample, as far as its time is known; want of memory makes them late."""
    slack = timedelta(seconds=2) if status.is_exact else 3 * known.interval
    # One that takes seconds tells of what happened after it began.
    until = status.time if status.told == sample else sample + slack
    return sample - known.step(sample) - slack <= status.time <= until


def _group_memory(known: _Evidence, status: Status, subject: _Subject) -> Iterator[Cause]:
    """A kill in its container or its own control group, at its limit."""
    rises = [
        row
        for row in known.rises.get(subject.group, ())
        if _within(known, status, row["time"]) and row["oom_kills"]
    ]
    slack = _AT_ONCE if status.is_exact else 3 * known.interval + _AT_ONCE
    told = [when for when in known.ooms.get(subject.container or "", ()) if abs(status.time - when) <= slack]
    if not rises and not told:
        return
    kind, why = "memory_limit", _no_memory(known, subject)
    if _is_limit_met(known.boxes.get(subject.group, {}), rises):
        why = f"its {subject.noun}'s limit of {units.size(known.boxes[subject.group]['memory_limit'])} was reached"
    elif subject.container is None:
        kind = "machine_memory"
    if status.by_signal == statuses.KILL:
        yield Cause(kind, f" by the kernel, {why}", is_proven=True)
    elif status.by_signal is None:
        yield Cause(kind, f", at the same time the kernel killed a process in its {subject.noun}: {why}")


def _is_limit_met(box: Record, rises: Iterable[Record]) -> bool:
    most, peak = box.get("memory_limit"), box.get("memory_peak") or 0
    met = any(row["oom_events"] or row["memory_max_events"] for row in rises)
    return most is not None and (met or peak >= 0.9 * most)


def _no_memory(known: _Evidence, subject: _Subject) -> str:
    """Where memory was short if no limit is known to be met: its last figures were lost, or another one was."""
    most = known.boxes.get(subject.group, {}).get("memory_limit")
    where, its = "its container", ", whose limit is "
    if subject.container is None:
        where, its = "the machine or a control group", "; its own has a limit of "
    return f"for lack of memory in {where}" + (its + units.size(most) if most else "")


def _machine_memory(known: _Evidence, status: Status, subject: _Subject) -> Iterator[Cause]:
    """A kill by the kernel that no counter of a container or a job explains."""
    if status.by_signal not in (None, statuses.KILL):
        return
    for row in known.machine_kills:
        if not _within(known, status, row["time"]):
            continue
        in_containers = sum(
            rise["oom_kills"] or 0
            for rises in known.rises.values()
            for rise in rises
            if rise["time"] == row["time"]
        )
        killed = int(row["oom_kills"] - in_containers)
        if killed <= 0:
            continue
        if status.signal == statuses.KILL and _is_all_of_them(known, status, row["time"], killed):
            yield Cause("machine_memory", f" by the kernel, {_no_memory(known, subject)}", is_proven=True)
        else:
            several = "a process" if killed == 1 else f"{killed} processes"
            yield Cause(
                "machine_memory", f", at the same time the kernel killed {several} for lack of memory"
            )


def _is_all_of_them(known: _Evidence, status: Status, sample: datetime, killed: int) -> bool:
    """Whether all that ended by SIGKILL then were the kernel's, because there were no more."""
    if status.source not in _TELL_ALL or any(abs(each - sample) <= known.interval for each in known.counted):
        return False
    # A process that is a job and a container's first is told twice, at one moment.
    return len({each.time for each in known.kills if _within(known, each, sample)}) <= killed


def _notice(known: _Evidence, status: Status) -> Iterator[Cause]:
    longest = _AT_NOTICE if status.by_signal is None else _NOTICE_HOLDS
    for when in reversed(known.notices):
        passed = status.time - when
        if timedelta(seconds=-5) <= passed <= longest:
            near = "at" if passed <= _AT_NOTICE else f"{units.duration(passed.total_seconds())} after"
            yield Cause("reclaim_notice", f", {near} the reclaim notice of {when:%H:%M} UTC")


def _shutdown(known: _Evidence, status: Status) -> Iterator[Cause]:
    asked = status.by_signal in statuses.ASKED or status.by_signal == statuses.KILL
    for when, goal in known.stops:
        if -_SHUTDOWN <= status.time - when <= known.interval:
            yield Cause("shutdown", f" at {goal}" if asked else f", at the same time as the {goal}")


def _shortages(known: _Evidence, status: Status) -> list[Shortage]:
    """The file systems without room, or turned read-only, when it ended; the newest shortage first."""
    # Room is asked for at every sample, the table of mounts every ten seconds at least.
    more = {"read_only": timedelta(seconds=1) + _AT_ONCE}
    found = [
        each
        for each in known.shortages
        if each.holds(status.time, known.step(each.since) + more.get(each.kind, timedelta(seconds=1)))
    ]
    return sorted(found, key=lambda each: abs(status.time - each.since))


def _filled(shortages: Iterable[Shortage], status: Status, subject: _Subject) -> Iterator[Cause]:
    """A file system that had just become full, or was found so just after, with its own writing or signal to speak."""
    for each in shortages:
        passed = status.time - each.since
        if each.kind != "disk_full" or not status.is_exact or passed > _RECENT:
            continue
        words = f", {'at the same time' if passed < timedelta(0) else _after(passed)} {each.words()}"
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


def _pids(known: _Evidence, status: Status, subject: _Subject) -> Iterator[Cause]:
    """A fork that the limit of its container or control group refused, a little before the end at most."""
    limit = units.count(known.boxes.get(subject.group, {}).get("processes_limit"))
    for row in reversed(known.rises.get(subject.group, [])):
        passed = status.time - row["time"]
        is_near = _within(known, status, row["time"])
        if row["pids_max_events"] and (is_near or timedelta(0) <= passed <= _AT_ONCE):
            when = "at the same time" if is_near else _after(passed)
            yield Cause("pids_limit", f", {when} its {subject.noun}'s limit of {limit} processes was reached")


def _after(passed: timedelta) -> str:
    seconds = passed.total_seconds()
    return "less than a second after" if seconds < 1 else f"{units.duration(seconds)} after"


_RISES = f"""
    WITH {LIMIT_RISES}
    SELECT * FROM limit_rises WHERE oom_kills > 0 OR pids_max_events > 0 ORDER BY time"""  # noqa: S608
_BOXES = """
    SELECT archive, container_id, MAX(memory_limit) AS memory_limit, MAX(processes_limit) AS processes_limit,
        MAX(GREATEST(COALESCE(memory_peak, 0), COALESCE(memory_used, 0))) AS memory_peak,
        MAX(time) FILTER (WHERE end_boottime IS NULL) AS last_alive
    FROM container GROUP BY archive, container_id"""
# What a group had counted before its job was first read may be of others that were in it earlier.
_JOB_RISES = """
    SELECT archive, boot, pgid, start_ticks, time, oom_kills - LAG(oom_kills) OVER w AS oom_kills, NULL AS oom_events,
        memory_max_events - COALESCE(LAG(memory_max_events) OVER w, 0) AS memory_max_events,
        pids_max_events - LAG(pids_max_events) OVER w AS pids_max_events
    FROM job ANTI JOIN (SELECT * FROM job_info WHERE container_id IS NOT NULL) USING (archive, boot, pgid, start_ticks)
    WHERE job.oom_kills IS NOT NULL OR job.pids_max_events IS NOT NULL
    WINDOW w AS (PARTITION BY archive, boot, pgid, start_ticks ORDER BY seq)
    QUALIFY job.oom_kills > LAG(job.oom_kills) OVER w OR job.pids_max_events > LAG(job.pids_max_events) OVER w
    ORDER BY time"""
_JOB_BOXES = """
    SELECT archive, boot, pgid, start_ticks, MAX(memory_limit) AS memory_limit, MAX(pids_limit) AS processes_limit,
        MAX(memory_charged_peak) AS memory_peak
    FROM job WHERE memory_limit IS NOT NULL OR pids_limit IS NOT NULL GROUP BY ALL"""
_WRITTEN = """
    SELECT SUM(write_bytes_per_second * interval_seconds) AS written FROM job_rates
    WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND start_ticks = $start
        AND time > $since AND time <= $until"""
# What a recorder says at its start; what could not be followed for a while is no such reason.
_SILENCES = """
    SELECT archive, arg_max(detail, time) AS detail FROM gap
    WHERE collector = 'process' AND reason = 'lifeline' AND detail NOT LIKE 'more began %' GROUP BY archive"""
_LATE = """
    SELECT archive, time, interval_seconds FROM node_steps
    QUALIFY interval_seconds > 1.2 * median(interval_seconds) OVER (PARTITION BY archive)"""
_MACHINE_KILLS = "SELECT archive, time, oom_kills FROM node_steps WHERE oom_kills > 0 ORDER BY time"
