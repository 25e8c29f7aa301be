"""The pages of the server: the fleet and each machine, by the code of the page of `inspect --html`, of prepared rows.

A page reads what its asker may see, as the API does. It has no form and no script of its own; its address says all.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from vmsonar_archive.system.text import printable
from vmsonar_inspect.advice.figures import ratio
from vmsonar_inspect.facts import model, units
from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.queries import total
from vmsonar_inspect.facts.timeline import Steps
from vmsonar_inspect.show.answers import FleetRow, names_of
from vmsonar_inspect.show.columns import Column, columns_of
from vmsonar_inspect.show.page import fleet as fleet_parts
from vmsonar_inspect.show.page import parts
from vmsonar_inspect.show.page.build import document, script, style
from vmsonar_inspect.show.page.charts import chart_of, drawn_over, series_of
from vmsonar_inspect.show.page.details import course_notes, short
from vmsonar_inspect.show.page.parts import CHARTS, Markup, table_place, tag, tile
from vmsonar_inspect.show.page.tables import machine_tables, table

from vmsonar.fleet.serve.access import Asker
from vmsonar.fleet.serve.forms import FleetUse, Life, Span
from vmsonar.fleet.serve.prepare import JobDay, MachineDay
from vmsonar.fleet.serve.prepared import Seen
from vmsonar.fleet.serve.questions import MOST_LIVES, Asked, NotThere, fleet, group_rows

#: Jobs on the page of the fleet, and days whose quarters of an hour are drawn.
_JOBS = 200
#: Rows of a table of one machine, days that its charts show, and jobs of it: those that the fleet's page links to are
#: among them.
_ROWS, _DAYS, _OWN_JOBS = 1000, 92, 300
MACHINES = "/machines/"
_DRAWN = 1500
_QUARTER = 900.0
_WORDS = {"alive": "alive", "late": "late", "gone": "gone, orderly", "lost": "gone without a word"}
_LASTS = {"1d": 1, "7d": 7, "30d": 30}


class PageSpan(Span, kw_only=True, forbid_unknown_fields=True):
    """The time of a page: from and to, or the last days."""

    days_back: Literal["1d", "7d", "30d"] | None = msgspec.field(default=None, name="last")

    def at(self, now: datetime) -> "PageSpan":
        """The same with the last days counted back from now, whole days, so that the page is the same for a day."""
        if self.days_back is None:
            return self
        begin = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
            days=_LASTS[self.days_back] - 1
        )
        return msgspec.structs.replace(self, since=begin, until=None)


class Listed(FleetRow, kw_only=True):
    """A machine in the table of the fleet."""

    state: Annotated[str, model.TEXT, titled("state")] = ""
    heard: Annotated[datetime | None, model.TIME, titled("last heard of")] = None


class Cost(model.AnswerPart):
    """A user or a program in the table of what was lost."""

    name: Annotated[str, model.TEXT]
    jobs: Annotated[int, model.COUNT, titled("jobs")]
    cpu_seconds: Annotated[float | None, model.SECONDS, titled("CPU time")]
    lost_cores: Annotated[float | None, model.CORE_HOURS]
    lost_gib: Annotated[float | None, model.GIB]
    lost_gpus: Annotated[float | None, model.COUNT]


_STATE = Column("state", 1, title="state", write=lambda row: row.state, right=False)
_COSTS = (
    Column("name", 0, title="name", write=lambda row: row.name, right=False),
    Column("lost_cores", 1, title="lost, core hours", write=lambda row: _hours(row.lost_cores)),
    Column("lost_gib", 2, title="GiB hours", write=lambda row: _hours(row.lost_gib), optional=True),
    Column("lost_gpus", 3, title="GPU hours", write=lambda row: _hours(row.lost_gpus), optional=True),
    Column("cpu_seconds", 4, title="CPU time", write=lambda row: units.hours(row.cpu_seconds)),
    Column("jobs", 5, title="jobs", write=lambda row: units.count(row.jobs)),
)


def _hours(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:,.1f}"


def fleet_page(asked: Asked, asker: Asker) -> str:
    """All machines."""
    seen, wish = asked.seen, asked.wish
    answer = fleet(asked)
    (whole,) = answer.rows
    lives = {life.archive: life for life in whole.machines}
    rows = [
        _listed(row, lives[row.archive])
        for row in seen.structs(
            FleetRow, "machine", "day = '' AND last >= ? AND first < ?", wish.first, wish.last
        )
        if row.archive in lives
    ]
    rows.sort(
        key=lambda row: (row.used_share is None, row.used_share or 0.0, row.hostname or "", row.archive)
    )
    sections, tables = [], {}
    verdicts = _verdicts(asked)
    if verdicts:
        said = {row.archive: verdicts.get(row.archive, []) for row in rows}
        # Each archive is a machine here, as in the title and the states.
        advice = fleet_parts.advice(rows, said, names_of(rows, UTC), MACHINES, count=len)
        sections.append(("advice", "Advice", advice))
    charts = _fleet_charts(asked, rows)
    tables["machines"] = _machines(rows, wish, whole.machines)
    jobs = seen.structs(
        model.JobUse, "job", "day = '' AND +last >= ? AND +first < ?", wish.first, wish.last,
        rest=f"ORDER BY cpu DESC, id, archive, day LIMIT {_JOBS}",
    )  # fmt: skip
    tables["jobs"] = table(f"Jobs with most CPU time, of {whole.jobs:,}", columns_of("jobs", UTC, True), jobs)
    tables["jobs"]["pages"] = [_address(job.archive or "", wish, f"#job={job.series_id}") for job in jobs]
    for name, title, shares in (("users", "Users", whole.users), ("programs", "Programs", whole.programs)):
        costs = [
            Cost(name=share.name or "unknown", jobs=share.jobs,
                 lost_cores=share.lost_core_hours, lost_gib=share.lost_gib_hours, lost_gpus=share.lost_gpu_hours,
                 cpu_seconds=None if share.core_hours is None else share.core_hours * 3600) for share in shares
        ]  # fmt: skip
        tables[name] = table(f"{title}, the costliest first", _COSTS, costs)
    sections = [
        ("states", "Machines now", _states(whole)),
        *sections,
        *([("charts", "Over time", CHARTS)] if charts else []),
        *((name, each["title"], table_place(name)) for name, each in tables.items() if each["count"]),
    ]
    tables = {name: each for name, each in tables.items() if each["count"]}
    head = [tag("h1", units.plural(sum(whole.states.values()), "machine")), _bar(asked, asker, "/")]
    data = charts | {"tables": tables, "kind": "machine", "of": "none", "details": []}
    return document("The fleet", head, sections, data, _foot(asker), served=True)


def _listed(row: FleetRow, life: Life) -> Listed:
    fields = {name: getattr(row, name) for name in FleetRow.__struct_fields__}
    return Listed(**fields, state=_WORDS[life.state], heard=life.last)


def _machines(rows: Sequence[Listed], wish: Any, lives: Sequence[Life]) -> dict[str, Any]:
    urgent = {life.archive: place for place, life in enumerate(lives)}
    ordered = sorted(rows, key=lambda row: urgent[row.archive])
    first, *rest = columns_of("machines", UTC)
    names = names_of(rows, UTC)
    first = replace(first, write=lambda row: names[row.archive])
    heard = Column(
        "heard", 2, title="last heard of", write=lambda row: units.clock(row.heard, UTC), right=False
    )
    title = "Machines" if len(rows) < MOST_LIVES else f"The {MOST_LIVES:,} machines that need somebody first"
    found = table(title, [first, _STATE, heard, *rest], ordered, "more")
    return found | {"pages": [_address(row.archive, wish) for row in ordered]}


def _verdicts(asked: Asked) -> dict[str, list[model.Verdict]]:
    """What was said last of each machine, to those who see all of it."""
    found = asked.seen.rows(
        """SELECT archive, MAX(day), number FROM visible
        WHERE kind = 'verdicts' AND day BETWEEN ? AND ? GROUP BY archive""",
        *asked.wish.days,
    )  # fmt: skip
    docs = asked.seen.numbered([number for *_, number in found])
    decoder = msgspec.json.Decoder(list[model.Verdict])
    return {archive: decoder.decode(doc) for (archive, *_), doc in zip(found, docs, strict=True)}


def _states(whole: FleetUse) -> Markup:
    """Who is heard of, and what was there and not used."""
    tiles = [
        tile(_WORDS[state].capitalize(), str(count), "machines", [], None)
        for state, count in whole.states.items()
    ]
    there = None if whole.idle_core_hours is None else (whole.core_hours or 0.0) + whole.idle_core_hours
    share = ratio(whole.idle_core_hours, there)
    spare = [("GiB hours", _hours(whole.idle_gib_hours)), ("GPU hours", _hours(whole.idle_gpu_hours))]
    if whole.idle_core_hours is not None:
        tiles.append(tile("Idle", _hours(whole.idle_core_hours), "core hours not used", spare, share))
    return tag("div", *tiles, class_="tiles")


def _fleet_charts(asked: Asked, rows: Sequence[FleetRow]) -> dict[str, Any]:
    """Busy cores and memory of all machines together: by quarters of an hour, or by days where these are very many."""
    if asked.seen.scope.user is not None:
        return {}
    found = asked.seen.rows(
        """SELECT day, COUNT(*), SUM(cpu) FROM visible
        WHERE kind = 'machine' AND day BETWEEN ? AND ? AND day != '' GROUP BY day ORDER BY day""",
        *asked.wish.days,
    )  # fmt: skip
    if not found:
        return {}
    begin = datetime.fromisoformat(found[0][0]).replace(tzinfo=UTC)
    end = datetime.fromisoformat(found[-1][0]).replace(tzinfo=UTC) + timedelta(days=1)
    cpus = total(row.cpus for row in rows)
    if sum(count for _, count, _ in found) > _DRAWN:
        steps = Steps(begin, end, 86_400.0)
        means: list[float | None] = [None] * steps.count
        for day, _, cpu in found:
            at = (datetime.fromisoformat(day).replace(tzinfo=UTC) - begin).days
            means[at] = None if cpu is None else short(cpu / 86_400)
        drawn = [series_of("busy cores, day by day", 0, {"mean": means})]
    else:
        lasts = [row.last for row in rows if row.last is not None]
        steps = Steps(begin, min(end, max(lasts, default=end)), _QUARTER)
        docs = asked.seen.docs("quarters", "day BETWEEN ? AND ?", *asked.wish.days)
        sums: list[float | None] = [None] * steps.count
        decoder = msgspec.json.Decoder(tuple[float, list[float | None]])
        for first, values in map(decoder.decode, docs):
            at = int((first - begin.timestamp()) // _QUARTER)
            for place, value in enumerate(values, start=at):
                if value is not None and 0 <= place < len(sums):
                    sums[place] = (sums[place] or 0.0) + value
        drawn = [series_of("busy cores", 0, {"mean": [*map(short, sums)]})]
    return drawn_over(
        steps, UTC, {"fleet-cores": chart_of("Busy cores", "cores", drawn, capacity=cpus, wide=True)}
    )


def machine_page(asked: Asked, asker: Asker, archive: str) -> str:
    """One machine, with the jobs on it that its asker may see."""
    seen, wish = asked.seen, asked.wish
    rows = seen.structs(FleetRow, "machine", "day = '' AND archive = ?", archive)
    if not rows:
        raise NotThere(f"no machine {archive[:80]!r}")
    (row,) = rows
    during = ("archive = ? AND day = '' AND last >= ? AND first < ?", archive, wish.first, wish.last)
    in_days = ("archive = ? AND day != '' AND last >= ? AND first < ?", archive, wish.first, wish.last)
    told = seen.structs(
        MachineDay, "course", "archive = ? AND day BETWEEN ? AND ?", archive, *wish.days,
        rest=f"ORDER BY day DESC LIMIT {_DAYS}",
    )[::-1]  # fmt: skip
    busiest, latest = "ORDER BY cpu DESC, id LIMIT {}", f"ORDER BY first DESC, id DESC LIMIT {_ROWS}"
    jobs = seen.structs(model.JobUse, "job", *during, rest=busiest.format(_OWN_JOBS))
    happened = seen.structs(model.Happening, "event", *in_days, rest=latest)[::-1]
    found = SimpleNamespace(
        jobs=jobs, containers=seen.structs(model.ContainerUse, "container", *during, rest=busiest.format(_ROWS)),
        gpus=seen.structs(model.GpuUse, "gpu", "archive = ? AND day = ''", archive), shares=[],
        gaps=seen.structs(model.Gap, "gap", *in_days, rest=latest)[::-1],
        wrong=[event for event in happened if event.cost_core_hours is not None],
    )  # fmt: skip
    kept = SimpleNamespace(
        events=[(archive, event) for event in happened],
        users=lambda _zone: group_rows(asked, "user", archive),
        programs=lambda _zone: group_rows(asked, "name", archive),
    )
    tables = machine_tables(kept, found, UTC)  # type: ignore[arg-type]
    for name, kind, rows_shown, most, where in (
        ("jobs", "job", jobs, _OWN_JOBS, during), ("containers", "container", found.containers, _ROWS, during),
        ("gaps", "gap", found.gaps, _ROWS, in_days), ("events", "event", happened, _ROWS, in_days),
    ):  # fmt: skip
        if len(rows_shown) == most and name in tables:
            tables[name]["rest"] = _hidden(seen, kind, most, *where)
    head = [
        tag("h1", row.hostname or archive),
        *_about(row, told),
        _bar(asked, asker, f"/machines/{archive}"),
    ]
    sections = []
    if told:
        last = told[-1]
        last_day = SimpleNamespace(
            verdicts=last.verdicts, advice=[last.advice], wrong=found.wrong, use=last.use, gpus=found.gpus
        )
        sections += [
            ("advice", "Advice on its last day", parts.advice(last_day)),  # type: ignore[arg-type]
            ("use", "Use on its last day", parts.tiles(last_day)),  # type: ignore[arg-type]
            ("charts", "Over time" if len(told) < _DAYS else f"Over its last {_DAYS} days", CHARTS),
        ]
    sections += [(name, each["title"], table_place(name)) for name, each in tables.items()]
    data = _machine_charts(told) if told else _span_of(jobs)
    details = _details(seen, archive, jobs)
    data |= {"tables": tables, "kind": "job", "of": "jobs", "details": details}
    data.setdefault("charts", {})
    return document(row.hostname or archive, head, sections, data, _foot(asker), served=True)


def _hidden(seen: Seen, kind: str, shown: int, where: str, *values: Any) -> str:
    """What a table says of the rows that it does not have."""
    sql = f"SELECT COUNT(id) FROM visible WHERE kind = ? AND ({where})"  # noqa: S608 - our own words
    ((count,),) = seen.rows(sql, seen.scope.kind(kind), *values)
    which = "with less CPU time" if kind in ("job", "container") else "earlier"
    return f"and {count - shown:,} {which}, which are not on this page" if count > shown else ""


def _about(row: FleetRow, told: Sequence[MachineDay]) -> list[Markup]:
    when = (
        ""
        if row.first is None or row.last is None
        else f"{row.first:%Y-%m-%d %H:%M} to {row.last:%Y-%m-%d %H:%M} UTC"
    )
    seen = f"{units.share(row.coverage)} of it seen" if row.coverage is not None else ""
    size = f"{units.plural(row.cpus, 'core')}, {units.size(row.memory_total_bytes)}" if row.cpus else ""
    ends = [
        f"Its last boot: {end.how.replace('_', ' ')}, {end.evidence}."
        for day in told[-1:]
        for end in day.ends[-1:]
    ]
    facts = [fact for fact in (row.instance_type, size, when, seen) if fact]
    return [
        tag("div", *(tag("span", fact) for fact in facts), class_="facts"),
        *(tag("p", end) for end in ends),
    ]


def _details(seen: Any, archive: str, jobs: Sequence[model.JobUse]) -> list[dict[str, Any]]:
    """What the section of each job shows, of its last day in the fleet."""
    found = seen.rows(
        "SELECT id, MAX(day), number FROM visible WHERE kind = 'story' AND archive = ? GROUP BY id", archive
    )
    shown = {job.series_id for job in jobs}
    found = [row for row in found if row[0] in shown]
    docs = seen.numbered([number for *_, number in found])
    decoder = msgspec.json.Decoder(JobDay)
    told = {series: decoder.decode(doc) for (series, *_), doc in zip(found, docs, strict=True)}
    return [
        {
            "course": told[job.series_id].course,
            "programs": [_program(each) for each in told[job.series_id].programs[:12]],
            "about": [job.series_id, job.container_id, str(job.pgid)],
            "gpus": job.gpus,
            "notes": course_notes(job, told[job.series_id].advice),
        }
        for job in jobs
    ]


def _program(each: model.ProgramUse) -> list[str]:
    figures = [
        units.hours(each.cpu_seconds),
        units.size(each.memory_peak_bytes),
        units.size(each.own_read_bytes),
    ]
    return [
        each.program or "unknown",
        units.count(each.processes),
        *figures,
        units.size(each.own_write_bytes),
    ]


def _span_of(jobs: Sequence[model.JobUse]) -> dict[str, Any]:
    """The time of a page that shows no machine's own course: that of the jobs."""
    times = [time for job in jobs for time in (job.first, job.last) if time is not None]
    return drawn_over(Steps(min(times), max(times), _QUARTER), UTC, {}) if times else {}


def _machine_charts(told: Sequence[MachineDay]) -> dict[str, Any]:
    moments = [moment for day in told for moment in day.timeline]
    if not moments:
        return {}
    seconds = max(moment.seconds for moment in moments)
    end = max(moment.time + timedelta(seconds=moment.seconds) for moment in moments)
    steps = Steps(min(moment.time for moment in moments), end, seconds)

    def line(name: str, colour: int, field: str, high: str = "", thin: bool = False) -> dict[str, Any]:
        mean = _means(moments, field, steps)
        values = {"mean": mean} | ({"high": _means(moments, high, steps, largest=True)} if high else {})
        return series_of(name, colour, values, thin)

    use = told[-1].use
    cores, memory = use.cpus, use.memory_total_bytes
    busy, held = (
        [line("busy cores", 0, "cores", "cores_peak")],
        [line("in use", 4, "memory_bytes", "memory_peak_bytes")],
    )
    charts = {
        "cpu": chart_of("CPU: busy cores", "cores", busy, top=cores, capacity=cores, wide=True),
        "memory": chart_of("Memory in use", "bytes", held, top=memory, capacity=memory),
        "pressure": chart_of("Time stalled (PSI)", "share", [
            line("for a CPU", 0, "pressure_cpu", thin=True), line("for memory", 4, "pressure_memory", thin=True),
            line("for the disk", 1, "pressure_io", thin=True)], top=1),
        "disk": chart_of("Disk", "rate", [line("read", 0, "disk_read_rate"), line("written", 1, "disk_write_rate")]),
        "network": chart_of("Network", "rate", [line("received", 2, "received_rate"), line("sent", 3, "sent_rate")]),
        "gpu-busy": chart_of("GPU busy", "percent", [line("busy", 2, "gpu_util")], top=100),
    }  # fmt: skip
    return drawn_over(steps, UTC, charts)


def _means(
    moments: Sequence[model.Moment], field: str, steps: Steps, largest: bool = False
) -> list[float | None]:
    """The mean over each step of what shorter ones say, or the highest of it."""
    sums, weights = [0.0] * steps.count, [0.0] * steps.count
    for moment in moments:
        value = getattr(moment, field)
        at = int((moment.time - steps.first).total_seconds() // steps.seconds)
        if value is not None and at < steps.count:
            weight = 1.0 if largest else moment.seconds
            sums[at] = max(sums[at], value) if largest else sums[at] + value * weight
            weights[at] = 1.0 if largest else weights[at] + weight
    return [short(each / weight) if weight else None for each, weight in zip(sums, weights, strict=True)]


def _bar(asked: Asked, asker: Asker, path: str) -> Markup:
    """Where one is, and the times that one can choose; each is an address."""
    lasts = [("last=1d", "today"), ("last=7d", "7 days"), ("last=30d", "30 days"), ("", "all")]
    now = _with_time("", asked.wish)[1:]
    times = [
        tag(
            "a",
            says,
            href=f"{path}?{query}" if query else path,
            aria_current="true" if query == now else None,
        )
        for query, says in lasts
    ]
    home = [tag("a", "← The fleet", href=_with_time("/", asked.wish))] if path != "/" else []
    return tag("nav", *home, *times, aria_label="Time", class_="facts")


def _foot(asker: Asker) -> Markup:
    return tag(
        "footer", f"Seen by {printable(asker.name, 80)}, {asker.role}. ~ marks an estimate, ≥ a lower bound."
    )


def _address(archive: str, wish: Any, place: str = "") -> str:
    return _with_time(f"{MACHINES}{archive}", wish) + place


def _with_time(path: str, wish: PageSpan) -> str:
    """The address of another page about the same time."""
    ends = {"from": wish.since, "to": wish.until} if wish.days_back is None else {}
    said = {name: time.isoformat() for name, time in ends.items() if time is not None}
    query = f"last={wish.days_back}" if wish.days_back else urlencode(said)
    return f"{path}?{query}" if query else path


PAGES: dict[str, Callable[..., str]] = {"/": fleet_page, "/machines/{archive}": machine_page}


def asset(name: str) -> tuple[str, str] | None:
    """The style or the script of the pages."""
    if name == "page.css":
        return style(), "text/css; charset=utf-8"
    return (script("live.js"), "text/javascript; charset=utf-8") if name == "page.js" else None
