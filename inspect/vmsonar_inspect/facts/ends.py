"""How a job or a container ended: its status, with the cause that the evidence of its archive points to."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from operator import itemgetter

from msgspec.structs import replace
from vmsonar_archive.system.text import plain

from vmsonar_inspect.facts import statuses, units
from vmsonar_inspect.facts.causes import (
    AT_ONCE,
    MACHINE,
    NEARLY,
    Evidence,
    Subject,
    cause_of,
    is_limit_met,
    judged,
)
from vmsonar_inspect.facts.filesystems import FILLING, Shortage, query_shortages
from vmsonar_inspect.facts.model import ContainerUse, Ending, JobUse
from vmsonar_inspect.facts.queries import LIMIT_RISES, Key, Queries, Record, grouped, key_of, names_of
from vmsonar_inspect.facts.statuses import Status, status_of

RUNNING = "still running at the last sample"

#: Who wrote at least this part of what filled a file system, and not many times as much, wrote there.
_PART = 0.1
#: Where another file system took in this part of what a job wrote, it may have been written there.
_MOST = 0.5
_GOING_DOWN = {
    **dict.fromkeys(("poweroff", "halt"), "shutdown"),
    **dict.fromkeys(("reboot", "kexec", "soft_reboot"), "reboot"),
}
#: Whose exit is that of a whole job; `vmsonar run` waits for its command itself.
_WHOLE = ("job", "run")


class Ends:
    """Judges the ends of all jobs and containers that were opened together."""

    def __init__(
        self, queries: Queries, events: Iterable[Record], intervals: Mapping[str, float | None]
    ) -> None:
        self._queries = queries
        self._of = {
            archive: Evidence(timedelta(seconds=interval or 10.0)) for archive, interval in intervals.items()
        }
        for row in queries.rows(_HOMES):
            self._of[row["archive"]].homes[row["boot"], row["pgid"]] = row["containers"]
        for archive, rows in grouped(events, itemgetter("archive")).items():
            _sort_in(self._of[archive], rows)
        for row in queries.rows(_SILENCES):
            self._of[row["archive"]].silence = row["detail"]
        for row in queries.rows(_LOSSES):
            self._of[row["archive"]].losses.append(row["since"])
        for row in queries.rows(_PARTIAL):
            self._of[row["archive"]].is_partial = True
        if queries.has("container"):
            for row in queries.rows(_RISES):
                self._of[row["archive"]].rises.setdefault(row["container_id"], []).append(row)
            for row in queries.rows(_BOXES):
                self._of[row["archive"]].boxes[row["container_id"]] = row
        for key, rises in grouped(queries.rows(_JOB_RISES), key_of).items():
            self._of[key[0]].rises[key] = rises
        for row in queries.rows(_JOB_BOXES):
            self._of[row["archive"]].boxes[key_of(row)] = row
        # Asked first: as a part of the other it would not keep that from reading all rows of jobs.
        for row in queries.rows(_CROWDS) if queries.rows(_CROWDED) else ():
            self._of[row["archive"]].crowds.setdefault((row["boot"], row["user_id"]), []).append(row)
        queries.require_node_steps()
        for row in queries.rows(_LATE):
            self._of[row["archive"]].steps[row["time"]] = timedelta(seconds=row["interval_seconds"])
        for archive, rows in grouped(queries.rows(_MACHINE_KILLS), itemgetter("archive")).items():
            self._of[archive].rises[MACHINE] = _elsewhere(self._of[archive], rows)
        for archive, shortages in (query_shortages(queries) if queries.has("filesystem") else {}).items():
            self._of[archive].shortages = shortages
        for known in self._of.values():
            known.match_kills()

    def of_job(self, key: Key, job: JobUse) -> Ending:
        """How a job ended, and that it did where all that is left are zombies; nothing of what is no one job."""
        known = self._of[key[0]]
        if not job.is_one_job:
            return Ending()
        told = [row for row in known.exits.get(key[2], ()) if _is_of(row, key, job, known.interval)]
        own = [status_of(row) for row in told if row["subject"] in _WHOLE]
        # At the end of `vmsonar run` its command is still a zombie: nothing will show that it is gone.
        waited_for = [status for status in own if status.source == "run"]
        is_zombie = own and not waited_for and not job.ended and key[:3] in self._zombies
        if is_zombie and job.job_source == "process_group":
            job.ended, job.end = True, own[-1].time
            if job.started is not None:
                job.runtime_seconds = (job.end - job.started).total_seconds()
            ending = self.of_job(key, job)
            return replace(ending, words=f"{ending.words}; not waited for yet")
        own = waited_for or own
        if not job.ended and not waited_for:
            return Ending(words=RUNNING + (f"; its leader ended: {own[0].words}" if own else ""))
        if not own:
            return _untold(known, job, key)
        members = [status_of(row) for row in told if row["subject"] == "process"]
        subject = _subject(job, key, lambda shortage: self._written(key, job, shortage))
        ending = judged(known, own[0], subject, members)
        last = own[-1]
        if last.time - own[0].time > timedelta(seconds=1):
            later = units.duration((last.time - own[0].time).total_seconds())
            return replace(ending, words=f"{ending.words}; its last member ended {later} later: {last.words}")
        return ending

    @cached_property
    def _zombies(self) -> set[tuple[str, str, int]]:
        """Archive, boot and number of groups of which the last sample shows nothing but zombies."""
        return {(row["archive"], row["boot"], row["pgid"]) for row in self._queries.rows(_ZOMBIES)}

    def tells_kills(self, archive: str, sample: datetime) -> bool:
        """Whether all that the kernel had killed by a sample was in containers or jobs that tell it themselves."""
        return sample in self._of[archive].told_kills

    def limit_kills(self, archive: str) -> dict[Key, tuple[int, float]]:
        """The kills in jobs that have a control group for themselves and met its limit, and that limit."""
        known = self._of[archive]
        return {
            group: (sum(row["oom_kills"] or 0 for row in rises), known.boxes[group]["memory_limit"])
            for group, rises in known.rises.items()
            if not isinstance(group, str) and is_limit_met(known.boxes.get(group, {}), rises)
        }

    def _written(self, key: Key, job: JobUse, shortage: Shortage) -> float:
        """What a job wrote as a file system filled; 0 where that is no fair part of what filled it, or not known.

        Nobody records where a job writes: if another file system took in as much, it may have been that.
        """
        fell = shortage.fell or 0.0
        if not fell or (job.write_bytes or 0.0) < _PART * fell:
            return 0.0
        span = {"since": shortage.since - FILLING, "until": shortage.since + self._of[key[0]].interval}
        (row,) = self._queries.rows(_WRITTEN, **names_of(key), **span)
        written = float(row["written"] or 0.0)
        if not _PART * fell <= written <= fell / _PART:
            return 0.0
        place = dict(zip(("archive", "boot", "major", "minor"), (*key[:2], *shortage.device), strict=True))
        return 0.0 if self._queries.rows(_ALIKE, **place, **span, least=_MOST * written) else written

    def of_container(self, container: ContainerUse) -> Ending:
        """How a container ended, the last time it did; nothing where it is not known to have ended."""
        known = self._of[container.archive or ""]
        found = [status_of(row) for row in known.deaths.get(container.container_id, ())]
        if not found or _goes_on(known, container.container_id, found[-1].time):
            return Ending()
        # The kernel tells a signal where the engine has a number for it.
        near = [each for each in found if each.is_known and found[-1].time - each.time <= known.interval]
        first = None if near else _first_process(known, container.container_id, found[-1].time)
        last = near[-1] if near else first or found[-1]
        status = next((each for each in near if each.signal is not None), last)
        return judged(known, status, Subject(container.container_id, container.container_id))


def _subject(job: JobUse, key: Key, wrote: Callable[[Shortage], float]) -> Subject:
    user = None if job.user_id is None else (key[1], job.user_id)
    return Subject(job.container_id, job.container_id or key, user, job.processes_ulimit, wrote)


def _untold(known: Evidence, job: JobUse, key: Key) -> Ending:
    """The end of a job of which nobody told the status: that of its container, or what was near."""
    moment, untold = job.end or job.last, f"not known: {plain(known.silence)}"
    if moment is None:
        return Ending(words=untold)
    subject = _subject(job, key, lambda _: 0.0)
    for row in reversed(known.deaths.get(job.container_id or "", ())):
        status = status_of(row)
        if status.is_known and abs(status.time - moment) <= 3 * known.interval + AT_ONCE:
            ending = judged(known, status, subject)
            return replace(ending, words=f"its container ended: {ending.words}")
    status = Status(moment, is_exact=job.end is not None)
    cause = cause_of(known, status, subject)
    if cause is None:
        return Ending(words=untold)
    words = f"{untold}; it ended {cause.words.removeprefix(', ')}"
    return Ending(words=words, cause=cause.kind, is_coincidence=cause.is_coincidence)


def _goes_on(known: Evidence, container: str, death: datetime) -> bool:
    """Whether it was started again. The row of an end may come late and is no sample of a life."""
    started, seen = known.starts.get(container), known.boxes.get(container, {}).get("last_alive")
    return (started is not None and started > death) or (seen is not None and seen > death + known.interval)


def _sort_in(known: Evidence, rows: list[Record]) -> None:
    """Puts each event where it is looked for."""
    for row in rows:
        kind, when, container = row["event_type"], row["happened"] or row["time"], row["container_id"] or ""
        if kind == "container_die" or (kind == "exit" and row["subject"] == "container"):
            known.deaths.setdefault(container, []).append(row)
        elif kind == "exit" and row["pgid"] is not None:
            # A command may have made a group of its own.
            for group in {row["pgid"], row["pid"] if row["subject"] == "run" else row["pgid"]}:
                known.exits.setdefault(group, []).append(row)
            if container and row["subject"] == "job":
                known.residents.setdefault(container, []).append(row)
        elif kind == "exits_counted" and row["exit_code"] is None:
            known.counted.append(row["time"])
        elif kind == "container_start":
            known.starts[container] = when
        elif kind == "container_oom":
            known.ooms.setdefault(container, []).append({"time": when, "oom_kills": 1})
        elif kind == "teardown_notice":
            known.notices.append(when)
        elif kind == "daemon_stop" and row["reason"] in _GOING_DOWN:
            known.stops.append((when, _GOING_DOWN[row["reason"]]))
        if kind == "exit" and row["exit_signal"] == statuses.KILL:
            place = row["boot"], row["pgid"]
            homes = [container] if container else known.homes.get(place, ())
            for group in {MACHINE, *homes, place}:
                known.kills.setdefault(group, []).append(status_of(row))


def _elsewhere(known: Evidence, rows: list[Record]) -> list[Record]:
    """The kernel's kills that were in no container and no group of one job; those of a sample without are noted."""
    counted = Counter[datetime]()
    for rise in chain.from_iterable(known.rises.values()):
        counted[rise["time"]] += rise["oom_kills"] or 0
    known.told_kills = {row["time"] for row in rows if row["oom_kills"] <= counted[row["time"]]}
    return [
        row | {"oom_kills": int(row["oom_kills"] - counted[row["time"]])}
        for row in rows
        if row["time"] not in known.told_kills
    ]


def _first_process(known: Evidence, container: str, death: datetime) -> Status | None:
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
# Tasks are threads. Nothing limits root, and jobs alone say whose they are.
_CROWDED = f"""
    WITH limits AS (
        SELECT archive, boot, user_id, MIN(processes_limit) AS least FROM job_info
        WHERE user_id > 0 AND processes_limit IS NOT NULL GROUP BY ALL
    )
    SELECT limits.* FROM limits JOIN (SELECT archive, MAX(tasks_existing) AS most FROM node GROUP BY archive)
        USING (archive) WHERE most >= {NEARLY} * least"""  # noqa: S608
_CROWDS = f"""
    WITH crowded AS ({_CROWDED}),
    theirs AS (
        SELECT DISTINCT archive, boot, pgid, start_ticks, user_id, least
        FROM job_info JOIN crowded USING (archive, boot, user_id)
    )
    SELECT archive, boot, user_id, time, SUM(threads) AS tasks
    FROM job JOIN theirs USING (archive, boot, pgid, start_ticks)
    GROUP BY archive, boot, user_id, time, least HAVING SUM(threads) >= {NEARLY} * least ORDER BY time"""  # noqa: S608
_WRITTEN = """
    SELECT SUM(write_bytes_per_second * interval_seconds) AS written FROM job_rates
    WHERE archive = $archive AND boot = $boot AND pgid = $pgid AND start_ticks = $start
        AND time > $since AND time <= $until"""
# An overlay shows the room of the disk that it lies on.
_ALIKE = """
    WITH falls AS (
        SELECT device_major, device_minor, MAX(fs_type) AS fs_type, MAX(bytes_total) AS bytes_total,
            arg_min(bytes_available, seq) - arg_max(bytes_available, seq) AS fell
        FROM filesystem WHERE archive = $archive AND boot = $boot AND time > $since AND time <= $until
        GROUP BY device_major, device_minor
    )
    SELECT other.fell FROM falls AS other, falls AS full_
    WHERE other.fell >= $least AND (full_.device_major, full_.device_minor) = ($major, $minor)
        AND (other.device_major, other.device_minor) <> ($major, $minor)
        AND (other.bytes_total <> full_.bytes_total OR 'overlay' NOT IN (other.fs_type, full_.fs_type))"""
# What a recorder says at its start; what could not be followed for a while is no such reason.
_SILENCES = """
    SELECT archive, arg_max(detail, time) AS detail FROM gap
    WHERE collector = 'process' AND reason = 'lifeline' AND detail NOT LIKE 'more began %' GROUP BY archive"""
# Lost are those of which nobody knows how many they were.
_LOSSES = """
    SELECT archive, COALESCE(since, time) AS since FROM gap
    WHERE collector = 'process' AND reason = 'lifeline' AND detail LIKE 'more began %'"""
_PARTIAL = """
    SELECT archive FROM command_run UNION
    SELECT archive FROM sysinfo WHERE regexp_matches(config, '"(keep|leave_out)":\\[[^\\]]')"""
_HOMES = """
    SELECT archive, boot, pgid, list(DISTINCT container_id) AS containers FROM job_info
    WHERE container_id IS NOT NULL AND pgid IS NOT NULL GROUP BY ALL"""
_LATE = """
    SELECT archive, time, interval_seconds FROM node_steps
    QUALIFY interval_seconds > 1.2 * median(interval_seconds) OVER (PARTITION BY archive)"""
_ZOMBIES = """
    SELECT archive, boot, pgid FROM process JOIN (SELECT archive, MAX(time) AS time FROM samples GROUP BY archive)
        USING (archive, time)
    GROUP BY ALL HAVING bool_and(state = 'Z')"""
_MACHINE_KILLS = "SELECT archive, time, oom_kills FROM node_steps WHERE oom_kills > 0 ORDER BY time"
