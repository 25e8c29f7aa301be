"""What was recorded: each fact is queried once, when it is first needed."""

from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import TypeVar

from vmsonar_archive.read.findings import Finding
from vmsonar_archive.read.findings import Severity as Damage
from vmsonar_archive.system.errors import AnswerIsNo

from vmsonar_inspect.advice.rules import RuleBook, load_rules
from vmsonar_inspect.facts import model
from vmsonar_inspect.facts.batches import merge_batches
from vmsonar_inspect.facts.boots import query_machine_ends
from vmsonar_inspect.facts.ends import Ends
from vmsonar_inspect.facts.energy import Factor, Split, load_factor, split_energy
from vmsonar_inspect.facts.events import (
    COMMON,
    damage,
    happening,
    is_damage,
    is_everyday,
    is_wrong,
    query_event_rows,
    query_gaps,
    query_good_ends,
)
from vmsonar_inspect.facts.failures import count_ends
from vmsonar_inspect.facts.filesystems import query_filesystems
from vmsonar_inspect.facts.jobs import JobContext, as_job, group_jobs, query_contexts, query_jobs
from vmsonar_inspect.facts.machine import (
    VEILED_GPUS,
    query_containers,
    query_coverage,
    query_gpus,
    query_machines,
    query_node_use,
)
from vmsonar_inspect.facts.network import (
    LinkUse,
    ShareContext,
    ShareUse,
    query_links,
    query_share_contexts,
    query_shares,
)
from vmsonar_inspect.facts.programs import Pattern, ProgramMap, load_programs
from vmsonar_inspect.facts.queries import Key, Queries, Record, grouped
from vmsonar_inspect.facts.stories import concerns
from vmsonar_inspect.facts.timeline import query_timeline
from vmsonar_inspect.facts.unit_use import UnitUse, query_units
from vmsonar_inspect.tables.database import Tables
from vmsonar_inspect.tables.where import TimeFrame

N = TypeVar("N", ShareUse, LinkUse, UnitUse)
#: An engine's code for SIGKILL.
_KILLED = 137
#: Most stories where several jobs have the same id.
_MOST_STORIES = 5


@dataclass(frozen=True)
class InspectionSettings:
    """The user's choices: time, filters, rules."""

    frame: TimeFrame = field(default_factory=TimeFrame)
    user: str | None = None
    command: Pattern | None = None
    min_runtime: float | None = None
    rules: RuleBook = field(default_factory=load_rules)
    programs: ProgramMap = field(default_factory=load_programs)
    factor: Factor = field(default_factory=lambda: load_factor(None))
    #: Kinds or types of events; none are all but the everyday ones.
    kinds: frozenset[str] = frozenset()
    #: Whether a verdict on a job may say who was in its way, and how much others used.
    names_others: bool = True


class Recorded:
    """The facts about archives that were opened together, each computed once, when first needed."""

    def __init__(self, tables: Tables, settings: InspectionSettings, deep: bool = True) -> None:
        self.deep = deep
        self.queries = Queries(tables)
        self.sources = tables.places
        self.hosts = tables.hosts
        self.findings = [finding for finding in tables.findings if is_damage(finding)]
        self.settings = settings

    @cached_property
    def machines(self) -> dict[str, model.Machine]:
        """The machine of each archive."""
        found = query_machines(self.queries, self.sources, self.hosts)
        for archive, machine in found.items():
            use = self.node_use[archive]
            machine.cpus = machine.cpus or use.cpus
            machine.memory_bytes = machine.memory_bytes or use.memory_total_bytes
        return found

    @cached_property
    def coverage(self) -> dict[str, model.Coverage]:
        found = query_coverage(self.queries)
        damaged = {self._owner(each) for each in self.findings if each.severity is Damage.ERROR}
        for archive in self.sources:
            found.setdefault(archive, model.Coverage()).damaged = archive in damaged
        return found

    def _owner(self, finding: Finding) -> str:
        """The archive that a finding is about; "" where that cannot be told."""
        if len(self.sources) == 1:
            return next(iter(self.sources))
        places = ((archive, finding.path.removeprefix(place)) for archive, place in self.sources.items())
        return next(
            (archive for archive, rest in places if rest != finding.path and rest[:1] in ("", "/", " ")), ""
        )

    @cached_property
    def node_use(self) -> dict[str, model.NodeUse]:
        found = query_node_use(self.queries)
        return {archive: found.get(archive, model.NodeUse()) for archive in self.sources}

    @cached_property
    def _jobs(self) -> dict[Key, model.JobUse]:
        """Every job, without its energy."""
        found = query_jobs(self.queries, self.settings.programs, self.container_names, self.deep)
        for key, job in found.items():
            job.hostname = self.machines[key[0]].hostname
        found = merge_batches(self.queries, found)
        for key, job in found.items():
            if job.ending.source is None:
                job.ending = self._ends.of_job(key, job)
        return found

    @cached_property
    def _event_rows(self) -> list[Record]:
        return query_event_rows(self.queries, set(COMMON) & set(self.settings.kinds))

    @cached_property
    def _ends(self) -> Ends:
        intervals = {archive: coverage.interval_seconds for archive, coverage in self.coverage.items()}
        return Ends(self.queries, self._event_rows, intervals)

    @cached_property
    def keyed_jobs(self) -> dict[Key, model.JobUse]:
        """Every job, whatever the filters, by its key in the tables."""
        for key, job in self._jobs.items():
            split = self.splits[key[0]]
            job.energy = split.energy(split.jobs.get(key))
        return self._jobs

    @cached_property
    def jobs(self) -> list[model.JobUse]:
        """The jobs that pass the filters, most CPU time first."""
        chosen = self._chosen.values()
        return sorted(chosen, key=lambda job: (-(job.cpu_seconds or 0.0), job.first or 0, job.job))

    @cached_property
    def _chosen(self) -> dict[Key, model.JobUse]:
        return {key: job for key, job in self.keyed_jobs.items() if self._is_wanted(job)}

    def _is_wanted(self, job: model.JobUse) -> bool:
        wish = self.settings
        if wish.user is not None and job.user != wish.user:
            return False
        if wish.command is not None and not wish.command.search(job.command or ""):
            return False
        return wish.min_runtime is None or (job.runtime_seconds or 0.0) >= wish.min_runtime

    @cached_property
    def _containers(self) -> dict[tuple[str, str], tuple[model.ContainerUse, float | None]]:
        found = query_containers(self.queries) if self.queries.has("container") else {}
        for container, _ in found.values():
            container.ending = self._ends.of_container(container)
        return found

    @cached_property
    def _boxes(self) -> dict[str, model.ContainerUse]:
        return {key[1]: container for key, (container, _) in self._containers.items()}

    @cached_property
    def container_names(self) -> dict[str, str | None]:
        return {container_id: container.name for container_id, container in self._boxes.items()}

    @cached_property
    def containers(self) -> list[model.ContainerUse]:
        """The containers that pass the filters, most CPU time first."""
        found = []
        for (archive, container_id), (container, _) in self._containers.items():
            container.hostname = self.machines[archive].hostname
            split = self.splits[archive]
            container.energy = split.energy(split.containers.get(container_id))
            if self.settings.user in (None, container.user):
                found.append(container)
        return sorted(found, key=busiest_first)

    @cached_property
    def _bare_gpus(self) -> list[model.GpuUse]:
        return query_gpus(self.queries) if self.queries.has("gpu") else []

    @cached_property
    def gpus(self) -> list[model.GpuUse]:
        for gpu in self._bare_gpus:
            gpu.hostname = self.machines[gpu.archive or ""].hostname
            gpu.jobs = [job.job for job in self._jobs.values() if gpu.gpu in job.gpus]
            split = self.splits[gpu.archive or ""]
            gpu.energy = split.energy(split.gpus.get(gpu.gpu), metered_gpu=True)
        return self._bare_gpus

    @cached_property
    def veiled_gpus(self) -> set[str]:
        """The archives whose cards were used by processes that nobody could see."""
        return {row["archive"] for row in self.queries.rows(VEILED_GPUS)}

    def users(self, zone: tzinfo) -> list[model.GroupUse]:
        """Sums over users; a container whose processes were not recorded counts as one job of its owner."""
        known = {job.container_id for job in self._jobs.values()}
        hidden = {
            (container.archive or "", "", 0, number): as_job(container)
            for number, container in enumerate(self.containers)
            if container.container_id not in known and container.cpu_seconds is not None
        }
        chosen = {key: job for key, job in hidden.items() if self._is_wanted(job)}
        return group_jobs(self.queries, self._chosen | chosen, lambda job: job.user, zone)

    def programs(self, zone: tzinfo) -> list[model.GroupUse]:
        return group_jobs(self.queries, self._chosen, lambda job: job.program, zone)

    def sessions(self, zone: tzinfo) -> list[model.GroupUse]:
        """The jobs of each login, shell window or service together."""
        return group_jobs(self.queries, self._chosen, lambda job: job.session, zone)

    @cached_property
    def contexts(self) -> dict[Key, JobContext]:
        least = self.settings.rules.thin
        judged = {
            key: job
            for key, job in self._jobs.items()
            if job.samples >= least.samples and (job.observed_seconds or 0.0) >= least.seconds
        }
        return query_contexts(self.queries, judged, self.deep)

    @cached_property
    def events(self) -> list[tuple[str, model.Happening]]:
        """What happened, everyday things left out."""
        found = []
        for row in self._event_rows:
            if row["event_type"] not in COMMON or row["event_type"] in self.settings.kinds:
                event = happening(row, self._job_of(row), self._boxes.get(row["container_id"] or ""))
                event.hostname = self.machines[row["archive"]].hostname
                found.append((row["archive"], event))
        return sorted(found, key=lambda each: each[1].time)

    def chosen_events(self, wanted: str | None = None) -> list[model.Happening]:
        """The events of the kinds or types that were asked for, of one job or of all."""
        kinds = self.settings.kinds
        jobs = [self._jobs[key] for key in self.find_jobs(wanted)] if wanted is not None else None
        return [
            event
            for archive, event in self.events
            if (
                event.kind in kinds
                or event.event in kinds
                or (not kinds and (jobs or not is_everyday(event)))
            )
            and (jobs is None or any(job.archive == archive and concerns(event, job) for job in jobs))
        ]

    def wrong(self, archive: str) -> list[model.Happening]:
        """What went wrong on a machine, what was lost by it first, the rest in the order in which it happened."""
        jobs = {job.series_id: job for job in self._jobs.values()}
        found = [
            (event, jobs.get(event.job_series_id or ""), self._boxes.get(event.container_id or ""))
            for owner, event in self.events
            if owner == archive
        ]
        bad = [each for each in found if is_wrong(*each)]
        # What is told once: the end of a container is that of its first process too, and its lack of memory ended it.
        died = {
            event.container_id for event, _, _ in bad if event.event in ("container_die", "container_oom")
        }
        short = {event.container_id for event, _, _ in bad if event.event == "container_oom"}
        kept = []
        for event, job, box in bad:
            again = {
                "exit": job is not None and job.container_id in died,
                "container_die": event.exit_code == _KILLED and event.container_id in short,
                "oom_kill": self._ends.tells_kills(archive, event.time),
            }
            if not again.get(event.event, False):
                used = job.cpu_seconds if job is not None else box.cpu_seconds if box is not None else None
                event.cost_core_hours = None if used is None else used / 3600
                kept.append(event)
        return sorted(kept, key=lambda event: -(event.cost_core_hours or 0.0))

    @cached_property
    def _by_group(self) -> dict[tuple[str, str, int], list[tuple[Key, model.JobUse]]]:
        parts = ((key, self._jobs[lead]) for key, lead in self.queries.leaders.items() if key != lead)
        return grouped((*self._jobs.items(), *parts), lambda each: each[0][:3])

    def _job_of(self, row: Record) -> model.JobUse | None:
        """The job that an event names: by its start, or of a process by the time."""
        mine = self._by_group.get((row["archive"], row["boot"], row["pgid"]), [])
        if row["subject"] != "process" and row["start_ticks"] is not None:
            return next((job for key, job in mine if key[3] == row["start_ticks"]), None)
        before = [job for _, job in mine if job.started is not None and job.started <= row["time"]]
        return max(before, key=lambda job: job.started or row["time"], default=None)

    @cached_property
    def machine_ends(self) -> dict[str, list[model.MachineEnd]]:
        """How each boot ended; of a time that was cut off nothing is said."""
        return {} if self.settings.frame.until else query_machine_ends(self.queries, self._event_rows)

    @cached_property
    def filesystems(self) -> dict[str, list[model.FilesystemUse]]:
        return query_filesystems(self.queries) if self.queries.has("filesystem") else {}

    @cached_property
    def shares(self) -> list[ShareUse]:
        """The network file systems, those that were waited for most first."""
        return self._with_hosts(query_shares(self.queries) if self.queries.has("netfs") else [])

    @cached_property
    def links(self) -> list[LinkUse]:
        """The interfaces that lead out and the ports of fabrics."""
        return self._with_hosts(query_links(self.queries) if self.queries.has("net") else [])

    @cached_property
    def units(self) -> list[UnitUse]:
        """Services, batch jobs and other units by their control groups, most CPU time first."""
        return self._with_hosts(query_units(self.queries) if self.queries.has("cgroup") else [])

    def _with_hosts(self, found: list[N]) -> list[N]:
        for each in found:
            each.hostname = self.machines[each.archive or ""].hostname
        return found

    @cached_property
    def _share_contexts(self) -> dict[Key, ShareContext]:
        return query_share_contexts(self.queries) if self.queries.has("netfs") and self.contexts else {}

    @cached_property
    def program_ends(self) -> list[model.ProgramEnds]:
        """Programs and containers of which something failed."""
        return count_ends(
            self._event_rows,
            query_good_ends(self.queries),
            self._job_of,
            self.settings.programs,
            self._boxes,
            self._is_wanted,
        )

    @cached_property
    def gaps(self) -> list[tuple[str, model.Gap]]:
        damaged = [(self._owner(finding), damage(finding)) for finding in self.findings]
        return damaged + query_gaps(self.queries)

    def timeline(self, archive: str, steps: int) -> list[model.Moment]:
        return query_timeline(self.queries, archive, self.coverage[archive], steps)

    @cached_property
    def splits(self) -> dict[str, Split]:
        containers = [container for container, _ in self._containers.values()]
        facts = (self.machines, self.coverage, self.node_use, self._jobs, containers)
        return split_energy(self.queries, *facts, self.settings.factor)

    @cached_property
    def job_counts(self) -> dict[str, int]:
        jobs = "SELECT DISTINCT archive, boot, pgid, start_ticks FROM job"
        rows = self.queries.rows(f"SELECT archive, COUNT(*) AS jobs FROM ({jobs}) GROUP BY archive")  # noqa: S608
        return {row["archive"]: row["jobs"] for row in rows}

    def find_jobs(self, wanted: str) -> list[Key]:
        """The jobs of that id, array, task of one (3_5), process group or series, the latest first."""
        found = {
            key: job.first.timestamp() if job.first else 0
            for key, job in self._jobs.items()
            if wanted
            in (
                job.job,
                str(job.pgid),
                job.series_id,
                job.array_task,
                (job.array_task or "").partition("_")[0],
            )
        }
        if not found:
            raise AnswerIsNo(f"no job {wanted!r} was recorded: see the view jobs for those that were")
        return sorted(found, key=found.__getitem__, reverse=True)[:_MOST_STORIES]


def busiest_first(container: model.ContainerUse) -> tuple[float, str]:
    return -(container.cpu_seconds or 0.0), container.container_id
