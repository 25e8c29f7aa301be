"""Finds out what happened on some machines on one day, and puts it among the prepared answers: a process of its own.

`python -m vmsonar.fleet.serve.prepare STORE` reads one task as JSON from its input. Many archives are asked together,
because most of a query's cost is planning it.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import Any

import msgspec
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_inspect.facts import model
from vmsonar_inspect.facts.queries import grouped, total
from vmsonar_inspect.facts.stories import query_members
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened
from vmsonar_inspect.show.answers import FleetRow, fleet_rows
from vmsonar_inspect.show.page.details import job_courses
from vmsonar_inspect.tables.where import TimeFrame

from vmsonar.fleet.serve.combine import combined
from vmsonar.fleet.serve.prepared import LOST, Prepared, Row

#: Steps of a machine's day: a quarter of an hour.
STEPS = 96


class Task(msgspec.Struct):
    """A day of some archives: their paths, and what says when they have changed."""

    day: date
    #: Nothing follows that day: how the machine ended can be said.
    is_last: bool
    archives: dict[str, str]
    stamps: dict[str, str]
    #: None of it was prepared before.
    is_new: bool = False


class JobDay(msgspec.Struct):
    """What is told of a job beyond its row."""

    advice: model.Advice | None
    course: dict[str, Any]
    processes: list[model.ProcessUse]
    programs: list[model.ProgramUse]


class MachineDay(msgspec.Struct):
    """What is told of a machine's day beyond its row."""

    machine: model.Machine
    coverage: model.Coverage
    use: model.NodeUse
    energy: model.EnergyUse
    advice: model.Advice
    verdicts: list[model.Verdict]
    ends: list[model.MachineEnd]
    filesystems: list[model.FilesystemUse]
    timeline: list[model.Moment]


def prepare(task: Task, prepared: Prepared) -> None:
    """Answers for all archives of the task together; where that fails, for each alone, so that one harms no other."""
    try:
        _prepare(task, prepared, list(task.archives))
    except Exception:
        for archive in task.archives:
            try:
                _prepare(task, prepared, [archive])
            except Exception as error:
                said = str(error) if isinstance(error, VmsonarError) else f"{type(error).__name__}: {error}"
                unit = (task.stamps[archive], time.time(), said[:500])
                prepared.replace(archive, str(task.day), [], unit, combined)


def _prepare(task: Task, prepared: Prepared, archives: Sequence[str]) -> None:
    begin = datetime.combine(task.day, clock(), UTC)
    frame = TimeFrame(begin, None if task.is_last else begin + timedelta(days=1))
    settings = InspectionSettings(frame=frame, names_others=False)
    paths = [Path(task.archives[archive]) for archive in archives]
    with opened(paths, settings, deep=True, quiet=True) as found:
        facts = _Facts(found)
        for archive in archives:
            is_there = archive in found.sources
            rows = list(facts.rows(archive)) if is_there else []
            unit = (task.stamps[archive], time.time(), None if is_there else "no archive that can be read")
            prepared.replace(archive, str(task.day), rows, unit, combined)


class _Facts:
    """What an inspection finds, by archive."""

    def __init__(self, found: Inspection) -> None:
        self.found = found
        self.machines = {row.archive: row for row in fleet_rows(found)}
        self.jobs = grouped(found.jobs, lambda job: job.archive or "")
        self.containers = grouped(found.containers, lambda box: box.archive or "")
        self.gpus = grouped(found.gpus, lambda gpu: gpu.archive or "")
        self.events = grouped(found.events, lambda each: each[0])
        self.gaps = grouped(found.gaps, lambda each: each[0])
        self.told = self._told()

    def _told(self) -> dict[str, JobDay]:
        jobs = self.found.jobs
        courses = job_courses(self.found, jobs)
        keys = {job.series_id: key for key, job in self.found.keyed_jobs.items()}
        members = query_members(self.found.queries, [keys[job.series_id] for job in jobs])
        return {
            job.series_id: JobDay(None, course, *mine)
            for job, course, mine in zip(jobs, courses, members, strict=True)
        }

    def rows(self, archive: str) -> Iterator[Row]:
        """Everything about one archive."""
        found, machine = self.found, self.machines[archive]
        if found.coverage[archive].first is None:
            return
        advices = found.advice(archive)
        yield from self._machine(archive, machine, advices)
        costs = {each.subject: each for each in advices if each.about == "job"}
        owners = {job.series_id: job.user for job in self.jobs.get(archive, [])}
        for job in self.jobs.get(archive, []):
            advice = costs.get(job.series_id)
            yield _job(job, advice)
            told = self.told[job.series_id]
            told.advice = advice
            if advice is not None:
                yield Row(
                    kind="advice",
                    id=f"job:{job.series_id}",
                    user=job.user,
                    doc=advice,
                    **_times(job.first, job.last),
                )
            yield Row(kind="story", id=job.series_id, user=job.user, doc=told)
        yield from _uses(self.jobs.get(archive, []), costs)
        yield Row(kind="advice", id="machine", doc=advices[0], **_times(machine.first, machine.last))
        for box in self.containers.get(archive, []):
            owners[box.container_id] = box.user
            yield _container(box)
        yield from self._events(archive, owners)
        yield from self._gaps(archive)
        yield from self._gpus(archive)

    def _machine(self, archive: str, row: FleetRow, advices: list[model.Advice]) -> Iterator[Row]:
        found, use, coverage = self.found, self.found.node_use[archive], self.found.coverage[archive]
        verdicts, ends = found.verdicts(archive), found.machine_ends.get(archive, [])
        told = MachineDay(
            found.machines[archive], coverage, use, found.splits[archive].whole(), advices[0], verdicts,
            ends, found.filesystems.get(archive, []), found.timeline(archive, STEPS),
        )  # fmt: skip
        told.machine.source = row.source = archive
        seconds = coverage.covered_seconds
        cards = self.gpus.get(archive, [])
        known = [gpu for gpu in cards if gpu.gpu_util.mean is not None]
        spare: dict[str, Any] = {
            "idle_cpu": _rest(row.cpus, use.cores.mean, seconds),
            "idle_memory": _rest(row.memory_total_bytes, use.memory_bytes.mean, seconds),
            "idle_gpu": total((1 - (gpu.gpu_util.mean or 0) / 100) * seconds for gpu in known)
            if known
            else None,
        }
        times = _times(row.first, row.last)
        cost = total(verdict.cost for verdict in verdicts)
        common = {"name": row.hostname, "share": row.coverage, "damaged": coverage.damaged, **times}
        common["end"] = ends[-1].how if ends else None
        yield Row(
            kind="machine",
            cpu=use.cpu_seconds,
            memory=use.memory_bytes.peak,
            cost=cost,
            doc=row,
            **spare,
            **common,
        )
        yield Row(kind="course", doc=told, **times)
        yield Row(kind="verdicts", doc=verdicts, **times)
        yield Row(kind="quarters", doc=_quarters(told.timeline), **times)
        for user in self._users(archive):
            jobs = sum(job.user == user for job in self.jobs.get(archive, []))
            yield Row(kind="own_machine", id=user, user=user, doc=_own_machine(row, jobs), **common)

    def _users(self, archive: str) -> list[str]:
        """Who had jobs or containers there."""
        users = {job.user for job in self.jobs.get(archive, [])}
        users |= {box.user for box in self.containers.get(archive, [])}
        return sorted(user for user in users if user is not None)

    def _events(self, archive: str, owners: dict[str, str | None]) -> Iterator[Row]:
        for number, (_, event) in enumerate(self.events.get(archive, [])):
            user = owners.get(event.job_series_id or event.container_id or "")
            at = event.time.timestamp()
            yield Row(
                kind="event", id=f"{number:06}", user=user, name=event.kind, first=at, last=at, doc=event
            )

    def _gaps(self, archive: str) -> Iterator[Row]:
        users = self._users(archive)
        for number, (_, gap) in enumerate(self.gaps.get(archive, [])):
            gap.archive = archive
            # Where the fleet lies on the server is nobody's business.
            gap.detail = gap.detail and gap.detail.removeprefix(f"{self.found.sources[archive]}/")
            times = _times(gap.begin, gap.end or gap.begin)
            yield Row(kind="gap", id=f"{number:06}", name=gap.kind, doc=gap, **times)
            if gap.kind != "no_samples":
                continue
            for user in users:
                own = model.Gap(
                    kind=gap.kind, begin=gap.begin, end=gap.end, seconds=gap.seconds, archive=archive
                )
                yield Row(
                    kind="own_gap", id=f"{number:06} {user}", user=user, name=gap.kind, doc=own, **times
                )

    def _gpus(self, archive: str) -> Iterator[Row]:
        for gpu in self.gpus.get(archive, []):
            use = gpu.gpu_util.mean
            machine = self.machines[archive]
            yield Row(
                kind="gpu", id=gpu.gpu, name=gpu.model, gpu=gpu.gpu_seconds, cpu=use, doc=gpu,
                **_times(machine.first, machine.last),
            )  # fmt: skip
            holders = [job for job in self.jobs.get(archive, []) if gpu.gpu in job.gpus]
            for user, jobs in grouped(holders, lambda job: job.user).items():
                if user is not None:
                    own = model.GpuUse(
                        gpu=gpu.gpu, parent=gpu.parent, archive=archive, hostname=gpu.hostname, index=gpu.index,
                        model=gpu.model, memory_total_bytes=gpu.memory_total_bytes, jobs=[job.job for job in jobs],
                    )  # fmt: skip
                    firsts, lasts = ([getattr(job, end) for job in jobs] for end in ("first", "last"))
                    yield Row(
                        kind="own_gpu", id=f"{gpu.gpu} {user}", user=user, name=gpu.model, doc=own,
                        **_times(min(filter(None, firsts), default=None), max(filter(None, lasts), default=None)),
                    )  # fmt: skip


def _quarters(moments: Sequence[model.Moment]) -> tuple[float, list[float | None]]:
    """Busy cores in each quarter of an hour, from which quarter on: what machines are added up by."""
    sums: dict[int, tuple[float, float]] = {}
    for moment in moments:
        if moment.cores is not None:
            place = int(moment.time.timestamp() // 900)
            held, seconds = sums.get(place, (0.0, 0.0))
            sums[place] = held + moment.cores * moment.seconds, seconds + moment.seconds
    first, last = min(sums, default=0), max(sums, default=0)
    means = [sums[at][0] / sums[at][1] if at in sums else None for at in range(first, last + 1)]
    return first * 900.0, means if sums else []


def _uses(jobs: Sequence[model.JobUse], advices: dict[str, model.Advice]) -> Iterator[Row]:
    """What each user's jobs of each program used together."""
    for (user, program), mine in grouped(jobs, lambda job: (job.user, job.program)).items():
        each = [_job(job, advices.get(job.series_id)) for job in mine]
        sums = ("cpu", "gpu", "runtime", "read", "write", "energy", "cost", *LOST)
        said: dict[str, Any] = {name: total(getattr(row, name) for row in each) for name in sums}
        yield Row(
            kind="use", id=f"{user or ''}\x1f{program or ''}", user=user, name=program, jobs=len(each),
            memory=max((row.memory for row in each if row.memory is not None), default=None),
            doubt=any(row.doubt for row in each), **said,
        )  # fmt: skip


def _own_machine(row: FleetRow, jobs: int) -> FleetRow:
    """What concerns everybody on a machine: what it is and when it was seen, nothing of its use."""
    return FleetRow(
        hostname=row.hostname, archive=row.archive, source=row.archive, instance_type=row.instance_type,
        first=row.first, last=row.last, span_seconds=row.span_seconds, coverage=row.coverage, cpus=row.cpus,
        cores=model.NOTHING, memory_total_bytes=row.memory_total_bytes, memory_bytes=model.NOTHING, gpus=row.gpus,
        gpu_util=model.NOTHING, used_share=None, jobs=jobs, problems=0, verdicts=[], size_p95=None,
        machine_id=row.machine_id, instance_id=row.instance_id,
    )  # fmt: skip


def _job(job: model.JobUse, advice: model.Advice | None) -> Row:
    verdicts = advice.verdicts if advice is not None else []
    return Row(
        kind="job", id=job.series_id, user=job.user, name=job.program, cpu=job.cpu_seconds,
        memory=job.memory_bytes.peak, gpu=job.gpu_seconds, runtime=job.runtime_seconds, read=job.read_bytes,
        write=job.write_bytes, energy=job.energy.joules, cost=total(verdict.cost for verdict in verdicts),
        doubt=job.cpu_is_lower_bound or job.cpu_seconds_low is not None, doc=job,
        **_times(job.started or job.first, job.end or job.last), **_lost(verdicts),
    )  # fmt: skip


def _lost(verdicts: Sequence[model.Verdict]) -> dict[str, Any]:
    """The most that one verdict names: several may speak of the same hours. What it waited for it never had."""
    hours = {verdict.cost_figure: verdict.cost_hours or 0.0 for verdict in verdicts}
    return {
        name: max((hours[figure] for figure in figures if figure in hours), default=None)
        for name, figures in LOST.items()
    }


def _container(box: model.ContainerUse) -> Row:
    return Row(
        kind="container", id=box.container_id, user=box.user, name=box.name, cpu=box.cpu_seconds,
        memory=box.memory_bytes.peak, runtime=box.runtime_seconds, read=box.read_bytes, write=box.write_bytes,
        energy=box.energy.joules, doc=box, **_times(box.first, box.last),
    )  # fmt: skip


def _times(first: datetime | None, last: datetime | None) -> dict[str, Any]:
    return {"first": first and first.timestamp(), "last": last and last.timestamp()}


def _rest(there: float | None, mean: float | None, seconds: float) -> float | None:
    """What was there over that time and not used."""
    return None if there is None or mean is None else max(0.0, there - mean) * seconds


def main(arguments: Iterable[str]) -> None:
    (store,) = arguments
    os.nice(19)
    prepare(msgspec.json.decode(sys.stdin.buffer.read(), type=Task), Prepared(Path(store)))


if __name__ == "__main__":
    main(sys.argv[1:])
