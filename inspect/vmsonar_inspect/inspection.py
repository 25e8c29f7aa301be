"""One inspection: asks the tables once for each thing and keeps the answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import Any

from vmsonar_archive.findings import Finding

from vmsonar_inspect import advise, energy
from vmsonar_inspect.asking import Asker, total
from vmsonar_inspect.energy import Factor, energy_of, load_factor
from vmsonar_inspect.frames import Frame
from vmsonar_inspect.groups import group_jobs
from vmsonar_inspect.load_events import damage, is_damage, load_events, load_gaps
from vmsonar_inspect.load_jobs import JobContext, Key, load_contexts, load_jobs
from vmsonar_inspect.load_machine import load_coverage, load_machines, load_node_use
from vmsonar_inspect.load_parts import load_containers, load_gpus
from vmsonar_inspect.load_timeline import load_timeline
from vmsonar_inspect.model import (
    ContainerUse,
    Coverage,
    EnergyUse,
    Gap,
    GpuUse,
    GroupUse,
    Happening,
    JobUse,
    Machine,
    Moment,
    NodeUse,
)
from vmsonar_inspect.model_advice import Advice, Severity, Verdict
from vmsonar_inspect.programs import Pattern, ProgramMap, load_programs
from vmsonar_inspect.rules import RuleBook, load_rules
from vmsonar_inspect.split_energy import Split, split_energy
from vmsonar_inspect.text import plain
from vmsonar_inspect.verdicts import judge


@dataclass(frozen=True)
class Settings:
    """What a person chose: the time, the jobs, the rules."""

    frame: Frame = field(default_factory=Frame)
    user: str | None = None
    command: Pattern | None = None
    min_runtime: float | None = None
    rules: RuleBook = field(default_factory=load_rules)
    programs: ProgramMap = field(default_factory=load_programs)
    factor: Factor = field(default_factory=lambda: load_factor(None))
    pue: float | None = None


class Inspection:
    """Everything that can be said about the archives that were opened together."""

    def __init__(
        self,
        connection: Any,
        sources: dict[str, str],
        hosts: dict[str, str | None],
        findings: Sequence[Finding],
        settings: Settings,
        deep: bool = True,
    ) -> None:
        self.deep = deep
        self.asker = Asker(connection)
        self.sources = sources
        self.hosts = hosts
        self.findings = [finding for finding in findings if is_damage(finding)]
        self.settings = settings

    @cached_property
    def machines(self) -> list[Machine]:
        found = load_machines(self.asker, self.sources, self.hosts)
        for machine in found:
            use = self.node_use.get(machine.archive)
            if use is not None:
                machine.cpus = machine.cpus or use.cpus
                machine.memory_bytes = machine.memory_bytes or use.memory_total_bytes
        return found

    @cached_property
    def coverage(self) -> dict[str, Coverage]:
        found = load_coverage(self.asker)
        return {archive: found.get(archive, Coverage()) for archive in self.sources}

    @cached_property
    def _node_steps(self) -> bool:
        self.asker.keep_node_steps()
        return True

    @cached_property
    def node_use(self) -> dict[str, NodeUse]:
        self._node_steps  # noqa: B018 - the query reads them
        found = load_node_use(self.asker)
        return {archive: found.get(archive, NodeUse()) for archive in self.sources}

    @cached_property
    def _all_jobs(self) -> dict[Key, JobUse]:
        found = load_jobs(self.asker, self.settings.programs, self.container_names, self.deep)
        names = {machine.archive: machine.hostname for machine in self.machines}
        for key, job in found.items():
            job.hostname = names.get(key[0])
        return found

    @property
    def keyed_jobs(self) -> dict[Key, JobUse]:
        """Every job, asked for or not, by what names it in the tables."""
        return self._all_jobs

    @cached_property
    def jobs(self) -> list[JobUse]:
        """The jobs that were asked for, most CPU time first."""
        for key, job in self._all_jobs.items():
            job.energy = self._energy(
                key[0], self.splits[key[0]].jobs.get(key) if key[0] in self.splits else None
            )
        chosen = [job for job in self._all_jobs.values() if self._is_wanted(job)]
        return sorted(chosen, key=lambda job: (-(job.cpu_seconds or 0.0), job.first or 0, job.job))

    def _is_wanted(self, job: JobUse) -> bool:
        wish = self.settings
        if wish.user is not None and job.user != wish.user:
            return False
        if wish.command is not None and not wish.command.search(job.command or ""):
            return False
        return wish.min_runtime is None or (job.runtime_seconds or 0.0) >= wish.min_runtime

    @cached_property
    def _containers(self) -> dict[tuple[str, str], tuple[ContainerUse, float | None]]:
        return load_containers(self.asker) if self.asker.has("container") else {}

    @cached_property
    def container_names(self) -> dict[str, str | None]:
        return {key[1]: box.name for key, (box, _) in self._containers.items()}

    @cached_property
    def containers(self) -> list[ContainerUse]:
        """The containers that were asked for, most CPU time first."""
        names = {machine.archive: machine.hostname for machine in self.machines}
        found = []
        for (archive, container_id), (box, _) in self._containers.items():
            box.hostname = names.get(archive)
            split = self.splits.get(archive)
            box.energy = self._energy(archive, split.containers.get(container_id) if split else None)
            if self.settings.user in (None, box.user):
                found.append(box)
        return sorted(found, key=lambda box: (-(box.cpu_seconds or 0.0), box.container_id))

    @cached_property
    def _bare_gpus(self) -> list[GpuUse]:
        return load_gpus(self.asker) if self.asker.has("gpu") else []

    @cached_property
    def gpus(self) -> list[GpuUse]:
        names = {machine.archive: machine.hostname for machine in self.machines}
        found = self._bare_gpus
        for gpu in found:
            gpu.hostname = names.get(gpu.archive or "")
            gpu.jobs = [job.job for job in self._all_jobs.values() if gpu.gpu in job.gpus]
            split = self.splits.get(gpu.archive or "")
            gpu.energy = self._energy(
                gpu.archive or "", split.gpus.get(gpu.gpu) if split else None, measured=True
            )
        return found

    def users(self, zone: tzinfo) -> list[GroupUse]:
        return group_jobs(self.asker, self._chosen, lambda job: job.user, zone)

    def programs(self, zone: tzinfo) -> list[GroupUse]:
        return group_jobs(self.asker, self._chosen, lambda job: job.program, zone)

    @cached_property
    def _chosen(self) -> dict[Key, JobUse]:
        wanted = {job.series_id for job in self.jobs}
        return {key: job for key, job in self._all_jobs.items() if job.series_id in wanted}

    @cached_property
    def contexts(self) -> dict[Key, JobContext]:
        self._node_steps  # noqa: B018 - the query joins them
        least = self.settings.rules.thin
        judged = {
            key: job
            for key, job in self._all_jobs.items()
            if job.samples >= least.samples and (job.observed_seconds or 0.0) >= least.seconds
        }
        return load_contexts(self.asker, judged, self.deep)

    @cached_property
    def events(self) -> list[tuple[str, Happening]]:
        return load_events(self.asker, self.container_names)

    @cached_property
    def gaps(self) -> list[tuple[str, Gap]]:
        damaged = [("", damage(finding)) for finding in self.findings]
        return damaged + load_gaps(self.asker)

    def timeline(self, archive: str, steps: int) -> list[Moment]:
        self._node_steps  # noqa: B018 - the query reads them
        return load_timeline(self.asker, archive, self.coverage[archive], steps)

    @cached_property
    def splits(self) -> dict[str, Split]:
        self._node_steps  # noqa: B018 - the query joins them
        boxes = [box for box, _ in self._containers.values()]
        return split_energy(self.asker, self.machines, self.coverage, self.node_use, self._all_jobs, boxes)

    def _energy(self, archive: str, joules: float | None, measured: bool = False) -> Any:
        split = self.splits.get(archive)
        if split is None or joules is None:
            return energy_of(None, None, None, None)
        coverage, factor = self.coverage[archive], self.settings.factor
        grams = factor.over(coverage.first, coverage.last) * self._pue(archive)
        source, method = (energy.MEASURED, "GPU meter") if measured else (split.source, split.method)
        return energy_of(joules, source, method, grams)

    def _pue(self, archive: str) -> float:
        if self.settings.pue is not None:
            return self.settings.pue
        machine = next(machine for machine in self.machines if machine.archive == archive)
        return energy.provider_of(machine.cloud_provider).pue

    def energy(self, archive: str) -> EnergyUse:
        """The energy of a machine, the idle remainder as its own figure."""
        split = self.splits.get(archive)
        if split is None:
            return EnergyUse()
        whole = self._energy(archive, split.total)
        factor = self.settings.factor
        coverage = self.coverage[archive]
        return EnergyUse(
            joules=split.total,
            kwh=whole.kwh,
            jobs_joules=sum(split.jobs.values()),
            idle_joules=split.idle,
            gpu_joules=total(split.gpus.values()),
            source=split.source,
            method=split.method,
            pue=self._pue(archive),
            grams_co2e=whole.grams_co2e,
            factor_grams_per_kwh=factor.over(coverage.first, coverage.last),
            factor_country=factor.country,
            factor_year=factor.year,
            factor_source=factor.source,
        )

    @cached_property
    def job_counts(self) -> dict[str, int]:
        rows = self.asker.rows(
            "WITH jobs AS (SELECT DISTINCT archive, boot, pgid, start_ticks FROM job) "
            "SELECT archive, COUNT(*) AS jobs FROM jobs GROUP BY archive"
        )
        return {row["archive"]: row["jobs"] for row in rows}

    def machine_advice(self, archive: str) -> Advice:
        """The machine, with its containers and GPUs."""
        machine = next(machine for machine in self.machines if machine.archive == archive)
        use, coverage = self.node_use[archive], self.coverage[archive]
        gpus = [gpu for gpu in self._bare_gpus if gpu.archive == archive]
        boxes = [box for (owner, _), (box, _) in self._containers.items() if owner == archive]
        about = advise.machine_advice(self.settings.rules, machine, coverage, use, gpus, boxes)
        every = about.verdicts + self._part_verdicts(archive, gpus)
        about.verdicts = sorted(every, key=lambda verdict: verdict.severity is not Severity.PROBLEM)
        return about

    def need_node_steps(self) -> None:
        """Makes the machine's intervals available to a query."""
        self._node_steps  # noqa: B018 - computed once

    def advice(self, archive: str, all_jobs: bool = False) -> list[Advice]:
        """The machine first, then the jobs that were asked for, or all."""
        machine = next(machine for machine in self.machines if machine.archive == archive)
        use = self.node_use[archive]
        jobs = []
        for key, job in self._all_jobs.items():
            # Group 0 is many unknown groups beyond a PID namespace: nothing can be said about it as one.
            if key[0] == archive and (all_jobs or (job.pgid != 0 and self._is_wanted(job))):
                context = self.contexts.get(key, JobContext())
                figures = advise.job_figures(job, context, machine, use, self._oom_kills(job))
                jobs.append(advise.job_advice(self.settings.rules, job, figures, use))
        used = {job.series_id: job.cpu_seconds or 0.0 for job in self._all_jobs.values()}
        return [
            self.machine_advice(archive),
            *sorted(jobs, key=lambda each: (-used[each.subject], each.subject)),
        ]

    def _oom_kills(self, job: JobUse) -> int:
        """Kills for lack of memory that this job did not survive."""
        if not job.ended or job.last is None or job.first is None:
            return 0
        # A shell can outlive its child for a while, whatever the interval.
        slack = max(10.0, 3 * (self.coverage[job.archive or ""].interval_seconds or 10.0))
        times = [
            happening.time
            for archive, happening in self.events
            if archive == job.archive and self._hits(happening, job)
        ]
        return sum(1 for time in times if abs((time - job.last).total_seconds()) <= slack)

    def _hits(self, happening: Happening, job: JobUse) -> bool:
        if happening.event == "container_oom":
            return job.container_id is not None and happening.container_id == job.container_id
        return happening.event == "oom_kill" and happening.pgid is not None and happening.pgid == job.pgid

    def _part_verdicts(self, archive: str, gpus: list[GpuUse]) -> list[Verdict]:
        book, found = self.settings.rules, []
        cpus = self.node_use[archive].cpus
        boxes = sorted(self._containers.items(), key=lambda each: (-(each[1][0].cpu_seconds or 0.0), each[0]))
        for (owner, container_id), (box, limit_share) in boxes:
            if owner == archive and self.settings.user in (None, box.user):
                name = f"container {plain(box.name or container_id[:12])}"
                figures = advise.container_figures(box, limit_share, cpus)
                found += judge(book, "container", container_id, name, figures)
        for gpu in gpus:
            name = f"GPU {gpu.index if gpu.index is not None else plain(gpu.gpu)}"
            found += judge(book, "gpu", gpu.gpu, name, advise.gpu_figures(gpu, self.coverage[archive]))
        return found
