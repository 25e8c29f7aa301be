"""What the page shows of each job, or of each machine of a fleet: its course in steps of its own, and its programs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any

from vmsonar_inspect.facts import units
from vmsonar_inspect.facts.model import Advice, JobUse
from vmsonar_inspect.facts.queries import (
    JOB_KEY_COLUMNS,
    JOBS_ON_GPUS,
    Key,
    Queries,
    Record,
    grouped,
    weighted_mean,
)
from vmsonar_inspect.facts.timeline import Steps
from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import FleetRow
from vmsonar_inspect.show.doubts import doubts_of
from vmsonar_inspect.show.page.parts import joined, sentence, tag, verdict_card
from vmsonar_inspect.show.terminal.lists import size_sentence

#: Points of all courses together, and the fewest and most of one.
_POINTS = 160_000
_FEWEST = 12
_MOST = 240
_MOST_PROGRAMS = 12

Values = list[float | None]


def short(value: float | None) -> float | None:
    """Four digits are more than a chart shows."""
    return None if value is None else float(f"{value:.4g}")


def means_and_highs(measures: Mapping[str, str], interval: str = "interval_seconds") -> str:
    """SQL for the mean over time of each measure, and for its highest sample."""
    return ", ".join(
        f"{weighted_mean(column, interval)} AS {name}, MAX({column}) AS {name}_high"
        for name, column in measures.items()
    )


def course(rows: Iterable[Record], name: str, count: int) -> dict[str, Values]:
    """The mean of each step, null where nothing was seen, and the highest sample where that is another figure."""
    mean: Values = [None] * count
    high = [*mean]
    for row in rows:
        if 0 <= row["place"] < count:
            mean[row["place"]], high[row["place"]] = short(row[name]), short(row.get(f"{name}_high"))
    return {"mean": mean} if mean == high else {"mean": mean, "high": high}


#: From which table which measures come, weighted by what; the SQL joins it with `page_subjects`.
Source = tuple[str, Mapping[str, str], str]


def courses(
    inspection: Inspection,
    rows: Sequence[JobUse | FleetRow],
    keys: Sequence[Key | None],
    sources: Sequence[Source],
) -> list[dict[str, Any]]:
    """Each job (by its key) or machine over time, in steps of its own."""
    queries, most = inspection.queries, max(_FEWEST, min(_MOST, _POINTS // max(1, len(rows))))
    steps, subjects = {}, []
    members: dict[Key | None, list[Key]] = {**grouped(queries.leaders, queries.leaders.__getitem__)}
    for number, (row, key) in enumerate(zip(rows, keys, strict=True)):
        if row.first is None or row.last is None:
            continue
        interval = inspection.coverage[row.archive or ""].interval_seconds or 1.0
        # The first interval ends at the first sample.
        early = row.first - timedelta(seconds=interval / 2)
        step = steps[number] = Steps.over(row.first, row.last, most, interval).reaching(early)
        begin, last = (time.replace(tzinfo=None) for time in (step.first, row.last))
        groups = members.get(key, [key or (row.archive, None, None, None)])
        subjects += [(number, *group, begin, last, step.seconds) for group in groups]
    times = "begin_time TIMESTAMP, last_time TIMESTAMP, step DOUBLE"
    queries.keep("page_subjects", f"number BIGINT, {JOB_KEY_COLUMNS}, {times}", subjects)
    found: list[dict[str, Any]] = [{} for _ in rows]
    for source, measures, interval_column in sources:
        figures = means_and_highs(measures, interval_column)
        sql = f"WITH {JOBS_ON_GPUS} SELECT number, {_PLACE} AS place, {figures} {source} GROUP BY 1, 2"
        for number, mine in grouped(queries.rows(sql), itemgetter("number")).items():
            count = max(row["place"] for row in mine) + 1
            found[number] |= {"first": steps[number].first.timestamp(), "step": steps[number].seconds}
            found[number] |= {name: course(mine, name, count) for name in measures}
    return found


# As Steps.rows has it, with a step for each subject.
_PLACE = "GREATEST(0, CAST(CEIL((epoch_us(r.time) - epoch_us(begin_time)) / (step * 1e6)) AS BIGINT) - 1)"


def _together(rate: str) -> str:
    """A rate of several groups, of which one may have begun within the interval."""
    return f"SUM({rate} * interval_seconds) / MAX(interval_seconds) AS {rate}"


_RATES = {"cpu_cores": "cores", "read_bytes_per_second": "read", "write_bytes_per_second": "write"}
# A batch job can have several groups: at each sample they are added.
_JOBS: Source = (
    f"""FROM (
        SELECT number, begin_time, step, time, MAX(interval_seconds) AS interval_seconds,
            SUM(memory) AS memory, {", ".join(map(_together, _RATES))}
        FROM job_rates JOIN page_subjects USING (archive, boot, pgid, start_ticks)
        GROUP BY number, begin_time, step, run, seq, time
    ) AS r""",  # noqa: S608
    {name: rate for rate, name in _RATES.items()} | {"memory": "memory"},
    "interval_seconds",
)
_JOBS_GPUS: Source = (
    """FROM jobs_on_gpus AS r JOIN page_subjects AS s ON r.archive = s.archive AND r.boot = s.boot
        AND r.pgid = s.pgid AND r.time BETWEEN begin_time AND last_time""",
    {"gpu": "util"},
    "1",
)
MACHINES: Source = (
    "FROM node_steps AS r JOIN page_subjects USING (archive)",
    {"cores": "cpu_busy_cores", "memory": "memory_used", "read": "disk_read_bytes_per_second",
     "write": "disk_write_bytes_per_second"},
    "interval_seconds",
)  # fmt: skip
MACHINES_GPUS: Source = ("FROM gpu AS r JOIN page_subjects USING (archive)", {"gpu": "gpu_util"}, "1")


def job_courses(inspection: Inspection, jobs: Sequence[JobUse]) -> list[dict[str, Any]]:
    """Each job over time."""
    keys = {job.series_id: key for key, job in inspection.keyed_jobs.items()}
    sources = [_JOBS, _JOBS_GPUS] if inspection.queries.has("gpu_process") else [_JOBS]
    return courses(inspection, jobs, [keys[job.series_id] for job in jobs], sources)


def job_details(
    inspection: Inspection, jobs: Sequence[JobUse], advices: Sequence[Advice]
) -> list[dict[str, Any]]:
    """What the section of each job shows beyond its row."""
    of_job = {advice.subject: advice for advice in advices if advice.about == "job"}
    drawn = job_courses(inspection, jobs)
    busy = _programs(inspection.queries, len(jobs)) if inspection.deep else [[] for _ in jobs]
    return [
        {
            "course": course,
            "programs": programs,
            "about": [job.series_id, job.container_id, str(job.pgid)],
            "gpus": job.gpus,
            "notes": course_notes(job, of_job.get(job.series_id)),
        }
        for job, course, programs in zip(jobs, drawn, busy, strict=True)
    ]


def course_notes(job: JobUse, advice: Advice | None) -> str:
    """The size, the verdicts, and how sure the figures of a job are, as HTML."""
    doubts = [tag("p", f"{sentence(words)}.", class_="soft small") for words in doubts_of(job)]
    if advice is None:
        return str(joined(doubts))
    cards = tag("div", *map(verdict_card, advice.verdicts), class_="verdicts")
    return str(joined([tag("p", size_sentence(advice).plain, class_="size"), cards, *doubts]))


def _programs(queries: Queries, count: int) -> list[list[list[str]]]:
    """The busiest programs of each job that `courses` took, with processes, CPU time, largest memory and I/O."""
    found: list[list[list[str]]] = [[] for _ in range(count)]
    queries.require_members()
    for row in queries.rows(_PROGRAMS):
        figures = [units.hours(row["cpu"]), units.size(row["memory"]), units.size(row["read"])]
        cells = [row["name"], units.count(row["processes"]), *figures, units.size(row["written"])]
        found[row["number"]].append(cells)
        if row["place"] == _MOST_PROGRAMS and row["kinds"] > _MOST_PROGRAMS:
            left = f"and {row['kinds'] - _MOST_PROGRAMS} other programs"
            found[row["number"]].append([left, *[""] * 5])
    return found


_PROGRAMS = f"""
    WITH kinds AS (
        SELECT number, COALESCE(program, 'unknown') AS name, COUNT(*) AS processes, SUM(cpu_seconds) AS cpu,
            MAX(memory_peak_bytes) AS memory, SUM(own_read_bytes) AS read, SUM(own_write_bytes) AS written
        FROM job_members JOIN page_subjects USING (archive, boot, pgid, start_ticks) GROUP BY ALL
    )
    SELECT kinds.*, COUNT(*) OVER (PARTITION BY number) AS kinds,
        ROW_NUMBER() OVER (PARTITION BY number ORDER BY cpu DESC NULLS LAST, name) AS place
    FROM kinds QUALIFY place <= {_MOST_PROGRAMS} ORDER BY number, place"""  # noqa: S608
