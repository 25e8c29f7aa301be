"""The questions that the API answers: what may be asked, and the documents of `inspect --json` as answers.

Every question reads the rows that its asker may see (`prepared.Seen`) and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec
from vmsonar_inspect.facts import model
from vmsonar_inspect.facts.queries import grouped, total
from vmsonar_inspect.facts.stories import told_of
from vmsonar_inspect.show.answers import FleetRow, Summary

from vmsonar.fleet.machines import USUAL, State, judged
from vmsonar.fleet.serve.forms import (
    Answer,
    BoxPage,
    DayPage,
    EventPage,
    FleetUse,
    JobPage,
    Life,
    MachinePage,
    Page,
    Provenance,
    Share,
    Span,
)
from vmsonar.fleet.serve.prepare import JobDay, MachineDay
from vmsonar.fleet.serve.prepared import Seen

#: Users and programs of the fleet that are named.
_SHARES = 50
#: Jobs and containers of a machine's day that are named.
_TOP = 100
#: Machines of the fleet that are listed one by one.
MOST_LIVES = 1000


@dataclass(frozen=True)
class Asked:
    """A question with what its answer needs beside the rows."""

    seen: Seen
    wish: Any
    path: str
    now: datetime
    #: Of each archive: when something newer came from its machine, and how often that is to be expected.
    heard: Mapping[str, tuple[datetime, timedelta]] = field(default_factory=dict)

    def document(
        self,
        view: str,
        rows: Iterable[Any],
        archives: Sequence[str] | None = None,
        more: bool = False,
        nothing: str | None = None,
    ) -> Answer:
        wish, rows = self.wish, list(rows)
        places = self.seen.places(archives)
        following = None
        if more:
            given = {name: value for name, value in msgspec.to_builtins(wish).items() if value is not None}
            following = f"{self.path}?{urlencode(given | {'offset': wish.offset + wish.limit})}"
        return Answer(
            answer=model.ANSWER, view=view, since=wish.since, until=wish.until, rows=rows,
            nothing=nothing or (None if rows else "nothing that you may see"), next=following,
            archives=[_place(place) for place in places],
        )  # fmt: skip


class NotThere(Exception):
    """Nothing of that name that this asker may see."""


def _place(found: dict[str, Any]) -> Provenance:
    times = {name: _moment(found[name]) for name in ("first", "last")}
    return Provenance(**found | times | {"damaged": bool(found["damaged"])})


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


_SORTS = {"start": "first"}
_ORDER = "{column} DESC, id, archive, day"


def _page(asked: Asked, view: str, kind: str, order: str, days: bool = False, **equal: Any) -> Answer:
    """A page of rows of one kind in the time that was asked about, as they are kept."""
    wish, seen = asked.wish, asked.seen
    where = [
        "kind = ?",
        "day != ''" if days else "day = ''",
        "COALESCE(last, 0) >= ?",
        "COALESCE(first, 0) < ?",
    ]
    values = [seen.scope.kind(kind), wish.first if wish.since else -1e13, wish.last]
    for name, value in ({"archive": wish.archive} | equal).items():
        if value is not None:
            where.append(f"{name} >= ?" if name == "runtime" else f"{name} = ?")
            values.append(value)
    sql = f"SELECT number, archive FROM visible WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608
    found = seen.rows(sql, *values, wish.limit + 1, wish.offset)
    shown = found[: wish.limit]
    docs = seen.numbered([number for number, _ in shown])
    archives = sorted({archive for _, archive in shown})
    return asked.document(view, map(msgspec.Raw, docs), archives, len(found) > wish.limit)


def jobs(asked: Asked) -> Answer:
    wish = asked.wish
    order = _ORDER.format(column=_SORTS.get(wish.sort, wish.sort))
    more = {"user": wish.user, "name": wish.program, "runtime": wish.min_runtime}
    return _page(asked, "jobs", "job", order, **more)


def containers(asked: Asked) -> Answer:
    order = _ORDER.format(column=_SORTS.get(asked.wish.sort, asked.wish.sort))
    return _page(asked, "containers", "container", order, user=asked.wish.user)


def gpus(asked: Asked) -> Answer:
    return _page(asked, "gpus", "gpu", "cpu, id, archive")


def events(asked: Asked) -> Answer:
    return _page(asked, "events", "event", "first, archive, id", days=True, name=asked.wish.kind)


def gaps(asked: Asked) -> Answer:
    return _page(asked, "gaps", "gap", "first, archive, id", days=True)


def advice(asked: Asked) -> Answer:
    """By day: what was said of each machine and job."""
    return _page(asked, "advice", "advice", "day DESC, archive, id DESC", days=True)


def machines(asked: Asked) -> Answer:
    """Every machine that was seen in the time, with the figures of all that was recorded of it."""
    wish = asked.wish
    lives = {life.archive: life for life in _lives(asked)}
    rows = asked.seen.structs(
        FleetRow, "machine", "day = '' AND last >= ? AND first < ?", wish.first, wish.last
    )
    chosen = [
        row
        for row in rows
        if wish.archive in (None, row.archive)
        and wish.host in (None, row.hostname)
        and (wish.state is None or lives[row.archive].state == wish.state)
    ]
    chosen.sort(
        key=lambda row: (row.used_share is None, row.used_share or 0.0, row.hostname or "", row.archive)
    )
    shown = chosen[wish.offset : wish.offset + wish.limit]
    names = [row.archive for row in shown]
    return asked.document("machines", shown, names, len(chosen) > wish.offset + wish.limit)


def machine(asked: Asked, archive: str) -> Answer:
    """A summary of each day; to users, who see no machine's whole use, the machine and nothing of others."""
    wish, seen = asked.wish, asked.seen
    if seen.scope.user is not None:
        rows: list[Any] = seen.structs(FleetRow, "machine", "day = '' AND archive = ?", archive)
        if not rows:
            raise NotThere(f"no machine {archive[:80]!r}")
        return asked.document("machines", rows, [archive])
    if not seen.places([archive]):
        raise NotThere(f"no machine {archive[:80]!r}")
    days = _days(asked, archive)
    shown = days[wish.offset : wish.offset + wish.limit]
    told = [summary(seen, archive, day, _TOP) for day in shown]
    return asked.document("summary", told, [archive], len(days) > wish.offset + wish.limit)


def _days(asked: Asked, archive: str) -> list[str]:
    """The prepared days of a machine in the time that was asked about."""
    sql = "SELECT day FROM visible WHERE kind = 'course' AND archive = ? AND day BETWEEN ? AND ? ORDER BY day"
    return [day for (day,) in asked.seen.rows(sql, archive, *asked.wish.days)]


def summary(seen: Seen, archive: str, day: str, top: int) -> Summary:
    """One day of a machine as the first screen has it."""
    where, place = "archive = ? AND day = ?", (archive, day)
    (told,) = seen.structs(MachineDay, "course", where, *place)
    advices = seen.structs(model.Advice, "advice", where, *place, rest="ORDER BY id DESC")
    happened = seen.structs(model.Happening, "event", where, *place, rest="ORDER BY id")
    order = f"ORDER BY cpu DESC, id LIMIT {top}"
    return Summary(
        machine=told.machine, coverage=told.coverage, use=told.use, energy=told.energy,
        jobs=seen.structs(model.JobUse, "job", where, *place, rest=order),
        containers=seen.structs(model.ContainerUse, "container", where, *place, rest=order),
        gpus=seen.structs(model.GpuUse, "gpu", where, *place), ends=told.ends, filesystems=told.filesystems,
        wrong=[event for event in happened if event.cost_core_hours is not None], shares=[],
        gaps=seen.structs(model.Gap, "gap", where, *place), advice=advices, verdicts=told.verdicts,
    )  # fmt: skip


def job(asked: Asked, archive: str, series: str) -> Answer:
    """The story of a job over all its days."""
    seen = asked.seen
    rows = seen.structs(model.JobUse, "job", "archive = ? AND id = ? AND day = ''", archive, series)
    if not rows:
        raise NotThere(f"no job {series[:80]!r} on that machine")
    told = seen.structs(JobDay, "story", "archive = ? AND id = ?", archive, series, rest="ORDER BY day")
    happened = seen.structs(
        model.Happening, "event", "archive = ? AND last >= ? AND first <= ?", archive,
        *_around(rows[0]), rest="ORDER BY first, id",
    )  # fmt: skip
    return asked.document("job", [_story(seen, rows[0], told, told_of(rows[0], happened))], [archive])


def _around(job: model.JobUse) -> tuple[float, float]:
    ends = [time.timestamp() for time in (job.started, job.first, job.last, job.end) if time is not None]
    return (min(ends) - 60, max(ends) + 60) if ends else (0.0, 0.0)


def _story(
    seen: Seen, job: model.JobUse, told: Sequence[JobDay], happened: list[model.Happening]
) -> model.Story:
    archive = job.archive or ""
    boxes = seen.structs(
        model.ContainerUse, "container", "archive = ? AND id = ? AND day = ''", archive, job.container_id
    )
    cards = seen.structs(model.GpuUse, "gpu", "archive = ? AND day = ''", archive) if job.gpus else []
    last = told[-1]
    nothing_said = model.Advice(about="job", subject=job.series_id, name=job.job)
    return model.Story(
        job=job, ended_by=job.ending.words or "", advice=last.advice or nothing_said,
        timeline=[moment for day in told for moment in _moments(day.course)],
        # Of many days, those of the last: a process that lives on has its totals there.
        processes=last.processes, programs=last.programs,
        container=next(iter(boxes), None), gpus=[card for card in cards if card.gpu in job.gpus], events=happened,
    )  # fmt: skip


def _moments(course: dict[str, Any]) -> list[model.StoryMoment]:
    names = {
        "cores": "cores",
        "memory_bytes": "memory",
        "read_rate": "read",
        "write_rate": "write",
        "gpu_util": "gpu",
    }
    means = {field: course.get(name, {}).get("mean", []) for field, name in names.items()}
    return [
        model.StoryMoment(
            time=datetime.fromtimestamp(course["first"] + at * course["step"], UTC),
            seconds=course["step"],
            memory_source=None,
            pressure_cpu=None,
            pressure_memory=None,
            pressure_io=None,
            **{field: values[at] if at < len(values) else None for field, values in means.items()},
        )
        for at in range(max(map(len, means.values())))
    ]


def timeline(asked: Asked) -> Answer:
    """Machines over time, in quarters of an hour; of one machine or of few, since all of them are very many."""
    wish, seen = asked.wish, asked.seen
    if wish.archive is None:
        raise WrongQuestion("archive: the timeline is of one machine: name it")
    moments: list[model.Moment] = []
    for day in _days(asked, wish.archive):
        (told,) = seen.structs(MachineDay, "course", "archive = ? AND day = ?", wish.archive, day)
        moments += [
            each
            for each in told.timeline
            if each.time.timestamp() + each.seconds > wish.first and each.time.timestamp() < wish.last
        ]
        if len(moments) > wish.offset + wish.limit:
            break
    shown = moments[wish.offset : wish.offset + wish.limit]
    return asked.document("timeline", shown, [wish.archive], len(moments) > wish.offset + wish.limit)


class WrongQuestion(Exception):
    """A parameter that is missing or wrong."""


def users(asked: Asked) -> Answer:
    return _groups(asked, "users", "user")


def programs(asked: Asked) -> Answer:
    return _groups(asked, "programs", "name")


_SUMS = """SUM(jobs), TOTAL(cpu), COUNT(cpu), SUM(gpu), SUM(runtime), MAX(memory), SUM(read), SUM(write), SUM(energy),
    MAX(doubt), COUNT(DISTINCT user), COUNT(DISTINCT day)"""


def _groups(asked: Asked, view: str, column: str) -> Answer:
    wish = asked.wish
    found = group_rows(asked, column, wish.archive, wish.limit + 1, wish.offset)
    archives = None if wish.archive is None else [wish.archive]
    return asked.document(view, found[: wish.limit], archives, len(found) > wish.limit)


def group_rows(
    asked: Asked, column: str, archive: str | None, limit: int = -1, offset: int = 0
) -> list[model.GroupUse]:
    """Sums over whole days; a job counts once a day."""
    sql = f"""SELECT {column}, {_SUMS} FROM visible
        WHERE kind = 'use' AND day BETWEEN ? AND ? AND (? IS NULL OR archive = ?)
        GROUP BY {column} ORDER BY TOTAL(cpu) DESC, {column} LIMIT ? OFFSET ?"""  # noqa: S608
    return [_group(*row) for row in asked.seen.rows(sql, *asked.wish.days, archive, archive, limit, offset)]


def _group(
    name: str | None, jobs: int, cpu: float, known: int, gpu: float | None, runtime: float | None, memory: float | None,
    read: float | None, write: float | None, energy: float | None, doubt: int, users: int, days: int,
) -> model.GroupUse:  # fmt: skip
    return model.GroupUse(
        name=name or "unknown", jobs=jobs, users=users, cpu_seconds=cpu if known else None, gpu_seconds=gpu,
        # The interval over midnight belongs to neither day.
        cpu_is_lower_bound=bool(doubt) or days > 1, runtime_seconds=runtime, memory_peak_bytes=memory,
        memory_peak_is_lower_bound=jobs > 1, read_bytes=read, write_bytes=write, io_is_lower_bound=days > 1,
        energy=model.Energy(joules=energy, kwh=None if energy is None else energy / 3.6e6),
    )  # fmt: skip


def fleet(asked: Asked) -> Answer:
    """All machines together: who is alive, what was used, what it cost."""
    wish, seen = asked.wish, asked.seen
    lives = _lives(asked)
    states = {state: sum(life.state == state for life in lives) for state in State}
    sums = seen.rows(
        """SELECT SUM(cpu), SUM(idle_cpu), SUM(idle_memory), SUM(idle_gpu) FROM visible
        WHERE kind = ? AND day BETWEEN ? AND ?""", seen.scope.kind("machine"), *wish.days,
    )[0]  # fmt: skip
    cpu, idle, memory, gpu = (None if each is None else each / 3600 for each in sums)
    ((count,),) = seen.rows(
        "SELECT COUNT(*) FROM visible WHERE kind = 'job' AND day = '' AND last >= ? AND first < ?",
        wish.first,
        wish.last,
    )
    users, programs = _shares(asked)
    whole = FleetUse(
        states=states, machines=lives[:MOST_LIVES], core_hours=cpu, idle_core_hours=idle,
        idle_gib_hours=None if memory is None else memory / 2**30, idle_gpu_hours=gpu, jobs=count,
        users=users, programs=programs,
    )  # fmt: skip
    return asked.document("fleet", [whole])


def _shares(asked: Asked) -> tuple[list[Share], list[Share]]:
    """What users, and what programs, used and lost, those first that cost most."""
    sql = """SELECT user, name, SUM(jobs), SUM(cpu), SUM(gpu), SUM(lost_cores), SUM(lost_gib), SUM(lost_gpus), SUM(cost)
        FROM visible WHERE kind = 'use' AND day BETWEEN ? AND ? GROUP BY user, name"""
    found = asked.seen.rows(sql, *asked.wish.days)
    users, programs = (_shares_of(found, column) for column in (0, 1))
    return users, programs


def _shares_of(found: Sequence[tuple[Any, ...]], column: int) -> list[Share]:
    shares = []
    for name, rows in grouped(found, lambda row: row[column]).items():
        jobs, cpu, gpu, cores, gib, gpus, cost = (total(row[at] for row in rows) for at in range(2, 9))
        used = {"core_hours": _hours(cpu), "gpu_hours": _hours(gpu)}
        lost = {"lost_core_hours": cores, "lost_gib_hours": gib, "lost_gpu_hours": gpus}
        shares.append((cost or 0, Share(name=name, jobs=int(jobs or 0), **used, **lost)))
    shares.sort(key=lambda each: (-each[0], -(each[1].core_hours or 0), each[1].name or ""))
    return [share for _, share in shares[:_SHARES]]


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 3600


def _lives(asked: Asked) -> list[Life]:
    """Every machine that was seen in the time, those first that need somebody."""
    wish, seen = asked.wish, asked.seen
    found = seen.rows(
        "SELECT archive, name, last, end FROM visible WHERE kind = ? AND day = '' AND last >= ? AND first < ?",
        seen.scope.kind("machine"), wish.first, wish.last,
    )  # fmt: skip
    lives = []
    for archive, name, last, end in found:
        # What came by another way than through the fleet has only its last sample.
        heard, interval = asked.heard.get(archive) or (datetime.fromtimestamp(last or 0.0, UTC), USUAL)
        state = judged(asked.now - heard, interval, end)
        lives.append(
            Life(archive=archive, hostname=name, state=state, heard=heard, last=_moment(last), end=end)
        )
    urgent = (State.LOST, State.LATE, State.GONE, State.ALIVE)
    return sorted(lives, key=lambda life: (urgent.index(life.state), life.hostname or "", life.archive))


@dataclass(frozen=True)
class Question:
    """One path of the API."""

    path: str
    says: str
    wish: type[Span]
    row: type[Any]
    answer: Callable[..., Answer]


QUESTIONS = (
    Question(
        "/api/v1/fleet", "All machines together: alive or gone, use, idleness, waste.", Span, FleetUse, fleet
    ),
    Question("/api/v1/machines", "Every machine, least used first.", MachinePage, FleetRow, machines),
    Question("/api/v1/machines/{archive}", "One machine, a summary for each day.", DayPage, Summary, machine),
    Question(
        "/api/v1/jobs", "Jobs that ran in the time, with their whole figures.", JobPage, model.JobUse, jobs
    ),
    Question("/api/v1/jobs/{archive}/{series}", "The story of one job.", Span, model.Story, job),
    Question("/api/v1/containers", "Containers.", BoxPage, model.ContainerUse, containers),
    Question("/api/v1/gpus", "GPUs, least busy first.", Page, model.GpuUse, gpus),
    Question("/api/v1/users", "Sums over users, by whole days.", Page, model.GroupUse, users),
    Question("/api/v1/programs", "Sums over programs, by whole days.", Page, model.GroupUse, programs),
    Question("/api/v1/timeline", "One machine over time.", Page, model.Moment, timeline),
    Question("/api/v1/events", "What happened.", EventPage, model.Happening, events),
    Question("/api/v1/advice", "Sizes and verdicts, by day, the latest first.", Page, model.Advice, advice),
    Question("/api/v1/gaps", "What was not seen.", Page, model.Gap, gaps),
)
