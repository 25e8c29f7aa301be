"""What the facts amount to: advice on the machine and its jobs, verdicts, and the story of one job."""

from collections.abc import Sequence
from functools import cached_property

from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import (
    Figures,
    batch_figures,
    container_figures,
    filesystem_figures,
    given_figures,
    gpu_figures,
    job_figures,
    link_figures,
    program_figures,
    share_context_figures,
    share_figures,
    task_figures,
    user_figures,
)
from vmsonar_inspect.advice.verdicts import by_cost, job_advice, judge, machine_advice, one_per_cause
from vmsonar_inspect.facts import model, units
from vmsonar_inspect.facts.batches import SLURM, over_machines, steps_over
from vmsonar_inspect.facts.jobs import JobContext
from vmsonar_inspect.facts.network import ShareContext
from vmsonar_inspect.facts.queries import Key, grouped
from vmsonar_inspect.facts.stories import concerns, query_course, query_members, told_of
from vmsonar_inspect.inspection.recorded import Recorded, busiest_first

#: Figures from which what others used could be told.
_OF_OTHERS = ("others_", "node_")


class Inspection(Recorded):
    """The facts and the advice about archives that were opened together."""

    def machine_advice(self, archive: str) -> model.Advice:
        """The machine, with its containers and GPUs."""
        rules, coverage, use = self.settings.rules, self.coverage[archive], self.node_use[archive]
        gpus = [gpu for gpu in self._bare_gpus if gpu.archive == archive]
        own = [each for (owner, _), each in self._containers.items() if owner == archive]
        containers = [container for container, _ in own]
        kills = self._limit_kills(archive, containers)
        about = machine_advice(rules, self.machines[archive], coverage, use, gpus, kills)
        verdicts = list(about.verdicts)
        for container, limit_share in sorted(own, key=lambda each: busiest_first(each[0])):
            if self.settings.user in (None, container.user):
                name = f"container {plain(container.name or container.container_id[:12])}"
                figures = container_figures(container, limit_share, use.cpus)
                verdicts += judge(rules, "container", container.container_id, name, figures)
        for gpu in gpus:
            name = f"GPU {gpu.index if gpu.index is not None else plain(gpu.gpu)}"
            verdicts += judge(rules, "gpu", gpu.gpu, name, gpu_figures(gpu, coverage))
        for disk in self.filesystems.get(archive, []):
            name = f"file system {plain(disk.filesystem)}"
            verdicts += judge(rules, "filesystem", disk.filesystem, name, filesystem_figures(disk))
        for share in self.shares:
            if share.archive == archive:
                name = f"share {plain(share.share)}"
                verdicts += judge(rules, "share", share.share, name, share_figures(share))
        for link in self.links:
            if link.archive == archive:
                verdicts += judge(rules, "link", link.link, f"link {plain(link.link)}", link_figures(link))
        for ends in self.program_ends:
            if ends.archive == archive:
                verdicts += judge(rules, "program", ends.name, plain(ends.name), program_figures(ends))
        about.verdicts = by_cost(verdicts)
        return about

    def advice(self, archive: str) -> list[model.Advice]:
        """The machine first, then the jobs that pass the filters, most CPU time first."""
        if archive not in self._advised:
            self._advised[archive] = self._advise(archive)
        return self._advised[archive]

    @cached_property
    def _advised(self) -> dict[str, list[model.Advice]]:
        return {}

    @cached_property
    def _jobs_of(self) -> dict[str, list[tuple[Key, model.JobUse]]]:
        return grouped(self._jobs.items(), lambda each: each[0][0])

    def _advise(self, archive: str) -> list[model.Advice]:
        # Group 0 stands for many unknown groups beyond a PID namespace, so there is nothing to judge.
        jobs = {
            key: job for key, job in self._jobs_of.get(archive, []) if job.is_one_job and self._is_wanted(job)
        }
        ordered = sorted(jobs, key=lambda key: (-(jobs[key].cpu_seconds or 0.0), jobs[key].series_id))
        whole = self.machine_advice(archive)
        has_batch = any(job.job_source == "slurm" for job in jobs.values())
        for user, theirs in grouped(jobs.values(), lambda job: job.user).items():
            if user is not None:
                figures = user_figures(theirs, self.coverage[archive], has_batch)
                whole.verdicts += judge(self.settings.rules, "user", user, f"user {plain(user)}", figures)
        whole.verdicts = by_cost(whole.verdicts)
        return [whole, *map(self.job_advice, ordered)]

    def verdicts(self, archive: str) -> list[model.Verdict]:
        """All verdicts on a machine and what ran on it, one for each cause, costliest first."""
        jobs = (job for _, job in self._jobs_of.get(archive, []))
        containers = {job.series_id: job.container_id for job in jobs if job.container_id}
        every = (verdict for advice in self.advice(archive) for verdict in advice.verdicts)
        return one_per_cause(self.settings.rules, every, containers)

    def job_advice(self, key: Key) -> model.Advice:
        job, machine, use = self._jobs[key], self.machines[key[0]], self.node_use[key[0]]
        context = self.contexts.get(key, JobContext())
        figures = {
            **job_figures(job, context, machine, use, self._oom_kills(job)),
            **self._own_limit(key),
            **share_context_figures(job, self._share_contexts.get(key, ShareContext()), context.disk_bytes),
        }
        if len(parts := self._parts(key)) > 1:
            figures |= batch_figures(job, parts)
        figures |= self._given(job, parts)
        if (box := self._boxes.get(job.container_id or "")) is not None:
            figures["throttled_share"] = box.throttled_share
            figures["memory_limit"] = None if box.killed_below_limit else box.memory_limit_bytes
        words = self._words_for_others(key, figures)
        advice = job_advice(self.settings.rules, job, figures, use, words)
        if not self.settings.names_others:
            for verdict in advice.verdicts:
                own = verdict.figures.items()
                verdict.figures = {name: value for name, value in own if not name.startswith(_OF_OTHERS)}
        return advice

    def _given(self, job: model.JobUse, parts: Sequence[model.JobUse]) -> Figures:
        """What it was given on all its nodes together, and its tasks, are judged once, where it did most."""
        figures: dict[str, float | None] = {}
        if _did_most(job, parts):
            figures.update(task_figures(steps_over(parts)))
        parts = parts if (job.nodes or 1) > 1 else [job]
        if _did_most(job, parts):
            figures.update(given_figures(job, parts, self.machines))
        is_veiled = any(part.archive in self.veiled_gpus for part in parts)
        if is_veiled and (figures.get("untouched_gpus") or 0) > 0:
            figures |= {"used_gpus": None, "untouched_gpus": None}
        return figures

    @cached_property
    def _batches(self) -> dict[tuple[str | None, ...], list[model.JobUse]]:
        jobs = (job for job in self._jobs.values() if job.job_source == SLURM)
        return grouped(jobs, _batch_key)

    def _parts(self, key: Key) -> list[model.JobUse]:
        """A batch job on each machine that was opened; its number may have been another's at another time."""
        job = self._jobs[key]
        others = self._batches[_batch_key(job)] if job.job_source == SLURM else []
        return [job, *(each for each in others if each.archive != job.archive and _met(job, each))]

    def _words_for_others(self, key: Key, figures: Figures) -> dict[str, str] | None:
        if not self.settings.names_others:
            return {"takers": "others had the cores", "others_cores_mean": "the rest"}
        return {"takers": self._takers(key, figures)} if figures.get("waited_share") else None

    def _takers(self, key: Key, figures: Figures) -> str:
        """Who had the cores while a job ran: the busiest other job, or all others together."""
        mine, cpus = self._jobs[key], units.plural(figures.get("cpus"), "core")
        others = [
            job
            for other, job in self._jobs.items()
            if other[0] == key[0] and other != key and job.is_one_job and _met(job, mine)
        ]
        most = max(others, key=lambda job: job.cores.mean or 0.0, default=None)
        rest = figures.get("others_cores_mean")
        if most is None or rest is None or (most.cores.mean or 0.0) < 0.5 * rest:
            return f"others used {units.cores(rest)} of {cpus}"
        who = f"job {plain(most.job)} of {plain(most.user)} ({plain(most.label or most.program)})"
        return f"{who} used {units.cores(most.cores.mean)} of {cpus}"

    def story(self, key: Key, steps: int) -> model.Story:
        """One job from beginning to end."""
        archive, job, advice = key[0], self.keyed_jobs[key], self.job_advice(key)
        events = told_of(job, (event for owner, event in self.events if owner == archive))
        containers = (each for each in self.containers if each.container_id == job.container_id)
        ((processes, programs),) = query_members(self.queries, [key])
        parts = sorted(self._parts(key), key=lambda part: -(part.cpu_seconds or 0.0))
        return model.Story(
            job=job,
            ended_by=job.ending.words or "",
            advice=advice,
            timeline=query_course(self.queries, key, job, self.coverage[archive].interval_seconds, steps),
            processes=processes,
            programs=programs,
            container=next(containers, None),
            gpus=[gpu for gpu in self.gpus if gpu.gpu in job.gpus],
            events=events,
            nodes=parts if len(parts) > 1 else [],
            whole=over_machines(parts) if len(parts) > 1 else None,
        )

    def _limit_kills(self, archive: str, containers: list[model.ContainerUse]) -> int:
        """Processes that the kernel killed at limits of containers, jobs and units that are known."""
        jobs = sum(kills for kills, _ in self._ends.limit_kills(archive).values())
        # A unit counts the kills of the jobs in it; a pod those of its containers, a batch job those of its steps.
        units = (each for each in self.units if each.archive == archive and each.cgroup_kind != "pod")
        in_units = sum(each.oom_kills or 0 for each in units if each.met_limit and not each.batch_step)
        boxes = (each.oom_kills or 0 for each in containers if not each.killed_below_limit)
        return sum(boxes) + max(jobs, in_units)

    def _own_limit(self, key: Key) -> Figures:
        """The kills in a job's own control groups at their limit, where there were any."""
        leaders = self.queries.leaders
        found = [
            each for group, each in self._ends.limit_kills(key[0]).items() if leaders.get(group, group) == key
        ]
        kills = sum(count for count, _ in found)
        return {"oom_kills": kills, "memory_limit": min(limit for _, limit in found)} if kills else {}

    def _oom_kills(self, job: model.JobUse) -> int:
        """Out-of-memory kills that ended this job."""
        if not job.ended or job.last is None or job.first is None:
            return 0
        # A shell can outlive its child for a while, whatever the interval.
        slack = max(10.0, 3 * (self.coverage[job.archive or ""].interval_seconds or 10.0))
        told = sum(
            abs((event.time - job.last).total_seconds()) <= slack
            for archive, event in self.events
            if archive == job.archive
            and event.event in ("container_oom", "oom_kill")
            and concerns(event, job)
        )
        is_proven = job.ending.is_proven and job.ending.cause in ("memory_limit", "machine_memory")
        return max(told, int(is_proven))


def _did_most(job: model.JobUse, parts: Sequence[model.JobUse]) -> bool:
    return job is max(parts, key=lambda part: (part.cpu_seconds or 0.0, part.archive or ""))


def _batch_key(job: model.JobUse) -> tuple[str | None, ...]:
    return job.cluster, job.job, job.user


def _met(one: model.JobUse, other: model.JobUse) -> bool:
    """Whether two jobs were seen at the same time."""
    if one.first is None or one.last is None or other.first is None or other.last is None:
        return False
    return max(one.first, other.first) < min(one.last, other.last)
