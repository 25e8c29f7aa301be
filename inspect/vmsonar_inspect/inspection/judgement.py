"""What the facts amount to: advice on the machine and its jobs, verdicts, and the story of one job."""

from collections.abc import Sequence

from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.figures import (
    Figures,
    container_figures,
    filesystem_figures,
    gpu_figures,
    job_figures,
    link_figures,
    program_figures,
    share_context_figures,
    share_figures,
    user_figures,
)
from vmsonar_inspect.advice.verdicts import by_cost, job_advice, judge, machine_advice, one_per_cause
from vmsonar_inspect.facts import model, units
from vmsonar_inspect.facts.jobs import JobContext
from vmsonar_inspect.facts.network import ShareContext
from vmsonar_inspect.facts.queries import Key, grouped
from vmsonar_inspect.facts.stories import concerns, query_course, query_processes, query_programs
from vmsonar_inspect.inspection.recorded import Recorded, busiest_first


class Inspection(Recorded):
    """The facts and the advice about archives that were opened together."""

    def machine_advice(self, archive: str) -> model.Advice:
        """The machine, with its containers and GPUs."""
        rules, coverage, use = self.settings.rules, self.coverage[archive], self.node_use[archive]
        gpus = [gpu for gpu in self._bare_gpus if gpu.archive == archive]
        own = [each for (owner, _), each in self._containers.items() if owner == archive]
        containers = [container for container, _ in own]
        about = machine_advice(rules, self.machines[archive], coverage, use, gpus, containers)
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
        # Group 0 stands for many unknown groups beyond a PID namespace, so there is nothing to judge.
        jobs = {
            key: job
            for key, job in self._jobs.items()
            if key[0] == archive and job.is_one_job and self._is_wanted(job)
        }
        ordered = sorted(jobs, key=lambda key: (-(jobs[key].cpu_seconds or 0.0), jobs[key].series_id))
        whole = self.machine_advice(archive)
        for user, theirs in grouped(jobs.values(), lambda job: job.user).items():
            if user is not None:
                figures = user_figures(theirs, self.coverage[archive])
                whole.verdicts += judge(self.settings.rules, "user", user, f"user {plain(user)}", figures)
        whole.verdicts = by_cost(whole.verdicts)
        return [whole, *map(self.job_advice, ordered)]

    def verdicts(self, archive: str, advices: Sequence[model.Advice]) -> list[model.Verdict]:
        """All verdicts on a machine and what ran on it, one for each cause, costliest first."""
        containers = {job.series_id: job.container_id for job in self._jobs.values() if job.container_id}
        every = (verdict for advice in advices for verdict in advice.verdicts)
        return one_per_cause(self.settings.rules, every, containers)

    def job_advice(self, key: Key) -> model.Advice:
        job, machine, use = self._jobs[key], self.machines[key[0]], self.node_use[key[0]]
        context = self.contexts.get(key, JobContext())
        figures = {
            **job_figures(job, context, machine, use, self._oom_kills(job)),
            **share_context_figures(job, self._share_contexts.get(key, ShareContext()), context.disk_bytes),
        }
        words = {"takers": self._takers(key, figures)} if figures.get("waited_share") else None
        return job_advice(self.settings.rules, job, figures, use, words)

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
        who = f"job {plain(most.job)} of {plain(most.user)} ({plain(most.command or most.program)})"
        return f"{who} used {units.cores(most.cores.mean)} of {cpus}"

    def story(self, key: Key, steps: int) -> model.Story:
        """One job from beginning to end."""
        archive, job, advice = key[0], self.keyed_jobs[key], self.job_advice(key)
        events = [event for owner, event in self.events if owner == archive and concerns(event, job)]
        containers = (each for each in self.containers if each.container_id == job.container_id)
        return model.Story(
            job=job,
            ended_by=job.ending.words or "",
            advice=advice,
            timeline=query_course(self.queries, key, job, self.coverage[archive].interval_seconds, steps),
            processes=query_processes(self.queries, key),
            programs=query_programs(self.queries, key),
            container=next(containers, None),
            gpus=[gpu for gpu in self.gpus if gpu.gpu in job.gpus],
            events=events,
        )

    def _oom_kills(self, job: model.JobUse) -> int:
        """Out-of-memory kills that ended this job."""
        if not job.ended or job.last is None or job.first is None:
            return 0
        # A shell can outlive its child for a while, whatever the interval.
        slack = max(10.0, 3 * (self.coverage[job.archive or ""].interval_seconds or 10.0))
        return sum(
            abs((event.time - job.last).total_seconds()) <= slack
            for archive, event in self.events
            if archive == job.archive
            and event.event in ("container_oom", "oom_kill")
            and concerns(event, job)
        )


def _met(one: model.JobUse, other: model.JobUse) -> bool:
    """Whether two jobs were seen at the same time."""
    if one.first is None or one.last is None or other.first is None or other.last is None:
        return False
    return max(one.first, other.first) < min(one.last, other.last)
