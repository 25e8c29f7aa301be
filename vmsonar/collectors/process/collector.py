"""Processes and jobs: who runs, what they use, and what became of those who ended."""

from datetime import datetime, timedelta

import msgspec
from vmsonar_archive.records import Capability, JobInfoRow
from vmsonar_archive.system.files import raise_descriptor_limit

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles, capability
from vmsonar.collectors.process.accounting import Accounting, ended_meanwhile
from vmsonar.collectors.process.accounts import Accounts
from vmsonar.collectors.process.activity import has_own_clocks
from vmsonar.collectors.process.command import policy
from vmsonar.collectors.process.connector import REMEDY
from vmsonar.collectors.process.control_groups import ControlGroups
from vmsonar.collectors.process.departures import Departures, note_moves
from vmsonar.collectors.process.exits import Exits
from vmsonar.collectors.process.files import RESERVE
from vmsonar.collectors.process.identity import (
    STEP_DAEMON,
    Identities,
    MemberFilter,
    Memberships,
    ProcessFilter,
    encode_info,
)
from vmsonar.collectors.process.jobs import JobTable, Last, oldest, read_last, take_over
from vmsonar.collectors.process.lifeline import Lifeline
from vmsonar.collectors.process.lives import CPUS, HERTZ, TICK
from vmsonar.collectors.process.memory_reader import MemoryReader
from vmsonar.collectors.process.model import (
    DENIED,
    NOT_OPEN,
    PF_EXITING,
    Job,
    Process,
    encode_job_info,
    encode_stray_info,
)
from vmsonar.collectors.process.reader import CHANGED, GONE
from vmsonar.collectors.process.table import PATIENCE, ProcessTable, process_capabilities, process_gaps
from vmsonar.host.lustre import job_naming
from vmsonar.host.users import Users

_DEAF = "more began and ended than could be followed: what ended in this interval has wider bounds"


class ProcessCollector(Collector):
    """Reads every process and keeps the books of jobs."""

    name = "process"
    kinds = ("process", "process_info", "job", "job_info", "event", "gap")

    def __init__(self, setup: Setup, last: Last | None = None, descriptors: int | None = None) -> None:
        """Processes may take so many descriptors, or all that the system allows."""
        config, host = setup.config, setup.host
        self._ids = setup.ids
        self._clock = setup.clock
        self._filter = ProcessFilter(config.filters)
        self._members = None if setup.descent is None else MemberFilter(setup.descent)
        self._with_jobs = config.collectors.job != "none"
        self._proc, self._host = str(host.proc), host
        self._naming = job_naming(host)
        self._descriptors = descriptors
        self.table = self._make_table()
        self._users = Users(host.etc / "passwd", ask_system=host.is_this_machine)
        self._identities = Identities(self.table.files, self._users, policy(config.command_line))
        self.jobs = JobTable(setup.ids, self._led_since)
        self._accounting = Accounting(self.table, self._stray)
        self._lifeline: Lifeline | None = None
        self._accounts: Accounts | None = None
        self._departures: Departures | None = None
        if self._with_jobs and has_own_clocks(self._proc):
            share = config.lifeline.share / 100 if config.lifeline.connector != "none" else 0.0
            members = None if setup.descent is None else setup.descent.members
            self._lifeline = Lifeline(
                self._proc, config.interval, share, members=members, is_sampled=self.table.by_pid.__contains__
            )
            self._accounts = Accounts(host, config.accounts, setup.clock)
            self._departures = Departures(
                self._lifeline, self._accounts, self.table, self.jobs, self._identities, self._filter
            )
        self._tick: Tick | None = None
        self._told = Troubles(self.name)
        self._troubles: list[Trouble] = []
        self._memory = MemoryReader(self.table)
        self._groups = ControlGroups(host.sys)
        self._memberships = Memberships()
        self._last = last
        self._remembered: dict[tuple[int, int], Process] = {}
        self._is_restored = False
        self._previous = 0
        #: Those that ignore SIGCHLD, of all that were there at the start or that the lifeline does not tell of.
        self._deaf: set[Process] = set()
        #: From the sample before, of an earlier run too, to when everybody was looked at in this one.
        self._span = (0, 0)
        self._users_due = 0
        self._exits, self._new_job_infos = list[bytes](), list[bytes]()
        self._new: list[Process] = []

    def collect(self, tick: Tick) -> Rows:
        """The rows of every process and job."""
        now, self._tick = tick.boottime, tick
        if tick.fresh:
            self._naming = job_naming(self._host)
        if now >= self._users_due:
            self._users.refresh()
            self._users_due = now + PATIENCE
        first, since = self._previous == 0, self._previous
        if first and self._last is not None and self._last.sample.boot == tick.boot:
            self._remembered = self.jobs.restore(self._last)
            self._is_restored = True
            since = self._last.sample.boottime
        self._last = None
        vanished, new = self.table.changes(now)
        if new and self._lifeline is not None:
            self._lifeline.catch_up()
        for process in oldest(new):
            self._welcome(process, tick)
        vanished |= self._not_found_again()
        looked, late = self._look_at_changed(tick, vanished)
        self._span = since, self._clock.boottime_ns()
        for process in (*new, *looked):
            if process.flags & PF_EXITING and process.over is None and process.is_zombie:
                process.over = self._span
        for process in looked:
            self._place(process, tick)
        if self._with_jobs:
            vanished = self._settle(tick, new + looked, vanished, late)
            self._span = since, self._clock.boottime_ns()  # some ended while others were read
        for process in vanished:
            self._forget(process)
        if first:
            self._complete_restored(tick)
        self._previous = now
        self.table.end_round(now)
        return self._rows(tick, first)

    def _settle(
        self, tick: Tick, looked: list[Process], vanished: set[Process], late: set[Process]
    ) -> set[Process]:
        """Credits what was used; returns all that are gone."""
        if self._lifeline is None or self._departures is None:
            self._doubt_deaf(tick.boottime)
            late |= ended_meanwhile(self.table, looked, vanished | late)
            gone = self._accounting.settle(tick.boottime, looked, vanished, late)
            self._memory.note_ends(looked, gone)
            return gone
        with self._lifeline.lock:
            interval, late = self._departures.hear(looked, vanished, late)
            # The word of a birth may come after the first look.
            for process in (one for one in looked if one.looks == 1 and one.life is None):
                process.life = self._lifeline.adopt(process)
        deaf = not interval.is_whole and self._lifeline.trouble is None and self._previous
        self._troubles = [("lifeline", _DEAF)] if deaf else []
        if self._is_restored:
            interval.is_whole, self._is_restored = False, False  # nobody listened while the daemon was down
        if not interval.is_whole and not self._memory.has_accounts:
            self._doubt_deaf(tick.boottime)
        unseen = self._departures.attach(interval, vanished, late)
        books = self._departures.read_books(interval, vanished, late, tick.is_last)
        self._memory.has_accounts, told_late = books
        if self._memory.has_accounts:
            for job in self.jobs.shown():
                job.has_accounts = True  # from now on the books tell what ends
        if self._accounts is not None:
            self._troubles += self._accounts.troubles()
        for process in vanished | late:
            life = process.life
            if life is not None and life.moves and process.pgid != life.pgid:
                process.pgid = life.pgid  # it moved after its last sample
                self._place(process, tick)
        members, guests = self._departures.place_unseen(
            unseen, lambda process: self._place(process, tick), self._stray
        )
        for process in members:
            self._groups.note(process)
        for process in looked:  # when every job has its place
            if process.life is not None and process.life.moves:
                note_moves(process, process.life, self.jobs)
        self._departures.credit_unseen(interval, vanished | late | members | guests)
        gone = vanished | members | guests
        gone = self._accounting.settle(tick.boottime, looked, gone, late, interval)
        self._memory.note_ends(looked, gone, interval.glanced())
        ended = (vanished | late | members | guests).union(told_late)
        keeps_user = self._keeps_user if self._filter.is_selective else None
        self._exits = Exits(tick, self.jobs, keeps_user).tell(interval, ended)
        for process in members:
            self.jobs.leave(process)
        return gone - members - guests

    def _doubt_deaf(self, now: int) -> None:
        """Of children that nobody heard of and no sample saw nothing is told where their parent ignores SIGCHLD."""
        self._deaf = {process for process in self._deaf if self.table.by_pid.get(process.pid) is process}
        for job in {process.job for process in self._deaf}:
            if job is not None and self._span[0]:
                job.doubt(high=(now - self._span[0]) * CPUS)

    def _stray(self, uid: int) -> Job:
        """The job of what a user's jobs used together."""
        assert self._tick is not None
        ticks = self._tick.boottime * HERTZ // 10**9
        job = self.jobs.stray(uid, self._tick.boot, ticks, self._keeps_user(uid))
        if job.is_shown and not job.info:
            job.info = encode_stray_info(job, self._users.name(uid), self._tick.time)
            self._new_job_infos.append(job.info)
        return job

    def _keeps_user(self, uid: int) -> bool:
        return self._filter.keeps_user(uid, self._users.name(uid))

    def _led_since(self, pgid: int) -> int | None:
        return self._lifeline.began(pgid) if self._lifeline else None

    @property
    def _hears(self) -> bool:
        return self._lifeline is not None and self._lifeline.trouble is None

    def capabilities(self) -> list[Capability]:
        return [*self._process_capabilities(), *self._lifeline_capabilities()]

    def _lifeline_capabilities(self) -> list[Capability]:
        if not self._with_jobs:
            return []
        item = "births and deaths between samples, and how they ended"
        if self._lifeline is None:
            why = "switched off, or /proc is of another pid namespace"
            return [capability(self.name, item, why)]
        found = [capability(self.name, item, self._lifeline.trouble, REMEDY)]
        return found if self._accounts is None else [*found, *self._accounts.capabilities(self.name)]

    def _process_capabilities(self) -> list[Capability]:
        if self._previous:
            return process_capabilities(self.name, self.table)
        table = self._make_table()  # a second one: in ours, everyone must still be new at the first sample
        table.changes(0)
        found = process_capabilities(self.name, table)
        table.close()
        return found

    def close(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
        if self._accounts is not None:
            self._accounts.close()
        self.table.close()

    @property
    def companion_pid(self) -> int | None:
        return None if self._accounts is None else self._accounts.pid

    def _make_table(self) -> ProcessTable:
        budget = self._descriptors
        if budget is None:
            budget = max(0, raise_descriptor_limit() - RESERVE)
        return ProcessTable(self._proc, budget, self._filter.kernel_threads)

    def _not_found_again(self) -> set[Process]:
        """The processes that ended between two runs of the daemon."""
        ended = set(self._remembered.values())
        self._remembered = {}
        for process in ended:
            self.table.by_pid.setdefault(process.pid, process)
        return ended

    def _welcome(self, process: Process, tick: Tick) -> None:
        process.started = self._wall(tick, process.start_ticks)
        if self._lifeline is not None:
            process.life = self._lifeline.adopt(process)
        earlier = self._remembered.pop((process.pid, process.start_ticks), None)
        if earlier is not None:
            take_over(process, earlier)
        elif process.life is None and (
            process.start_ticks * 10**9 // HERTZ < self._previous or not self._previous
        ):
            # It lived before we looked: whose children it waited for until now is unknown.
            process.counted_reaped = process.reaped
        if process.is_forked_copy:
            process.inherit(self.table.by_pid.get(process.ppid))
        self._identify(process)
        self._place(process, tick)
        self._groups.note(process)
        is_first = not self._previous
        if process.kept and (is_first or not self._hears) and self.table.ignores_children(process):
            self._deaf.add(process)
        is_late = is_first and self._is_restored and earlier is None and process.pid != process.pgid
        if is_late and process.job is not None:
            # It came while the daemon was down, and its leader may have ended since.
            process.job.doubt(high=max(0, tick.boottime - process.start_ticks * TICK) * CPUS)
        if process.job is not None and process.counted_reaped == process.reaped and earlier is None:
            process.job.doubt(high=process.reaped[0] + process.reaped[1])

    def _look_at_changed(self, tick: Tick, vanished: set[Process]) -> tuple[list[Process], set[Process]]:
        """Reads the processes that ran, and those that others may have changed; returns them and those that are gone.

        The clock of a pid that was used again goes on for the newcomer; the file of the old one has ended.
        """
        looked, late = [], set()
        look = self.table.look
        ran = self.table.ran()
        if self._members is not None:
            ran = list(filter(self._members.concerns, ran))
        for process in ran:
            comm = process.comm
            found = look(process)
            if found == GONE:
                if self._hears:
                    late.add(process)  # its end is told; else the next sample finds it missing
                else:
                    process.over = self._previous, self._clock.boottime_ns()
            elif found == CHANGED:
                looked.append(process)
                if process.looks == 2 or process.comm is not comm:
                    self._identify(process)
                if process.comm is not comm and process.comm == STEP_DAEMON:
                    # Its children were welcomed before it was known what it has become, and may sleep from now on.
                    for child in list(self.table.children.get(process.pid, ())):
                        self._identify(child)
        for parent in {self.table.by_pid.get(process.ppid) for process in vanished}.difference(ran, vanished):
            # It may have waited for its child between two looks at clocks.
            if parent is not None and look(parent) == CHANGED:
                looked.append(parent)
                ran.append(parent)
        others = set(self.table.orphans(vanished))
        others.update(self.table.sleepers_due(tick.boottime))
        for process in others.difference(ran):
            if look(process, ran=False) == CHANGED:
                looked.append(process)
            self._check_group(process)
        for process in others.intersection(ran):
            self._identify(process)
        return looked, late

    def _check_group(self, process: Process) -> None:
        """A sleeper keeps its user and its name, but others can move it to another control group."""
        identity = process.identity
        is_unnamed = identity is not None and identity.batch is not None and identity.batch.job is None
        if identity is None or is_unnamed or self._identities.belongs(process) is not identity.membership:
            self._identify(process)

    def _identify(self, process: Process) -> None:
        """Reads its identity, and has it told if that has changed."""
        parent = self.table.by_pid.get(process.ppid)
        if self._members is not None and not self._members.keeps(process, parent, self._identities.belongs):
            process.kept = False
            return
        identity = self._identities.read(process, parent)
        if identity is None or identity == process.identity:
            return
        is_known = process.identity is not None
        if is_known and process.io_fd == DENIED:
            process.io_fd = NOT_OPEN  # it may be ours now
        self._memberships.leave(process.pid, process.identity)
        process.identity = identity
        self._memberships.enter(process.pid, identity)
        process.kept = self._filter.keeps(identity)
        self._new.append(process)
        if is_known:
            self._groups.note(process)
        if is_known and process.job is not None and process.pid == process.job.pgid:
            self._describe_again(process.job, process)

    def _describe_again(self, job: Job, leader: Process) -> None:
        """A job is what its leader has become: a container's first program, not what started it."""
        before = msgspec.json.decode(job.info, type=JobInfoRow) if job.info else None
        if before is None or before.started is None:
            return
        self._describe(job, leader, before.started, before.first_seen)

    def _describe(self, job: Job, first: Process, started: datetime, seen: datetime | None) -> None:
        assert first.identity is not None
        name = self._naming.name(first.identity.program, first.identity.user_id)
        facts = {**self._identities.limits(first), "lustre_job_id": name}
        job.info = encode_job_info(job, first, started, seen, facts)
        if job.is_shown:
            self._new_job_infos.append(job.info)

    def _place(self, process: Process, tick: Tick) -> None:
        if not self._with_jobs:
            return
        before = process.job
        over, moves = process.over, process.life.moves if process.life is not None else ()
        process.over = (moves[-1].last, moves[-1].first) if moves else self._span  # if it leaves its job now
        job = self.jobs.place(process, tick.boot)
        process.over = over
        if before is not None and process.job is not before:
            self._groups.note(process)
            self._note_move(process, before)
        if process.job is not None:
            process.job.weigh(process)
            if process.job.read is None and process.moved is not None:
                process.job.credit_io((0, 0))  # it may be read, whatever it did before it came here
        hidden = process.moved is None and not self._memory.has_accounts
        if hidden and process.job is not None and not process.job.is_partial_io:
            process.job.is_partial_io = process.job.is_dirty = True
        if job is not None and job.is_shown:
            self._describe(job, process, self._wall(tick, job.start), tick.time)

    def _note_move(self, process: Process, before: Job) -> None:
        """Until when it used what in the group that it left is known by a glance, or not at all."""
        life = process.life
        if life is not None and life.moves:
            note_moves(process, life, self.jobs)
        if not process.left_jobs:
            used = process.used[0] + process.used[1] - process.counted[0] - process.counted[1]
            process.left_jobs = [(before, 0, used)]

    def _complete_restored(self, tick: Tick) -> None:
        """Ends restored jobs without members, and describes those whose description was lost."""
        self.jobs.end_empty()
        for job in self.jobs.shown():
            if not job.info and job.members:
                self._describe(job, oldest(job.members)[0], self._wall(tick, job.start), None)

    def _forget(self, process: Process) -> None:
        process.over = process.over or self._span
        self.jobs.leave(process)
        self.table.remove(process)
        self._memberships.leave(process.pid, process.identity)
        if self._members is not None:
            self._members.forget(process)

    def _rows(self, tick: Tick, first: bool) -> Rows:
        rows = Rows()
        rows.extend(
            "process", self.table.rows(only_kept=self._filter.is_selective or self._members is not None)
        )
        told = self.table.by_name.values() if tick.fresh else self._new
        infos = (self._info(process, tick.boot) for process in told if process.kept)
        rows.extend("process_info", [info for info in infos if info])
        jobs = self.jobs.shown()
        self._memory.refresh(jobs, tick.boottime)
        self._groups.read(jobs, tick.boottime)
        rows.extend("job", [job.encode() for job in jobs])
        rows.extend("job_info", [job.info for job in jobs if job.info] if tick.fresh else self._new_job_infos)
        rows.extend("event", self._exits)
        rows.extend("event", [job.encode_end() for job in self.jobs.take_ended()])
        self._new, self._new_job_infos, self._exits = [], [], []
        if first:
            for reason, detail in process_gaps(self.table):
                rows.gap(self.name, reason, detail)
            if self._lifeline is not None and self._lifeline.trouble is not None:
                rows.gap(self.name, "lifeline", self._lifeline.trouble)
        self._told.tell(self._troubles, tick, rows)
        tick.processes = self.table.by_pid
        tick.containers, tick.units = self._memberships.containers, self._memberships.units
        tick.batch_numbers = self._identities.numbers
        return rows

    def _info(self, process: Process, boot: str) -> bytes:
        """The info row, told once an hour; kept it would take half a kilobyte of each process."""
        series_id = self._ids.process(boot, process.pid, process.start_ticks)
        return encode_info(process, process.identity, series_id) if process.identity else b""

    def _wall(self, tick: Tick, ticks: int) -> datetime:
        since_boot = timedelta(microseconds=ticks * 1_000_000 // HERTZ)
        return tick.time - timedelta(microseconds=tick.boottime // 1000) + since_boot


def make(setup: Setup) -> ProcessCollector:
    """One that takes up the books where the archive left them."""
    archive = setup.archive if setup.descent is None else None  # one command has no earlier jobs
    return ProcessCollector(setup, None if archive is None else read_last(archive))
