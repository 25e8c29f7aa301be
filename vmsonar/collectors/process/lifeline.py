"""The lifeline: every process that is born or dies between two samples, and what can be learned of it in time.

A thread listens to the kernel (connector.py). Of processes too young for a sample it learns group and CPU time by a
glance now and then. When a child of another job was waited for, it reads what its parent then has of waited-for
time, so that children that end one after the other are told apart. A sample takes all of that over.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from time import clock_gettime_ns

from vmsonar.collectors.process.connector import EXIT, FORK, SID, UID, Connector, Event, NoConnector
from vmsonar.collectors.process.glances import BRIEF, Glances
from vmsonar.collectors.process.lives import (
    TICK,
    Death,
    Interval,
    Life,
    Unseen,
    all_deaths,
    known_and_open,
)
from vmsonar.collectors.process.model import Process
from vmsonar.collectors.process.pidfds import Pidfds
from vmsonar.collectors.process.probes import Probe, group_of, is_group, is_there
from vmsonar.collectors.process.reapers import Reapers
from vmsonar.host.proc_pid import THREADS

# Milliseconds. To wake up costs more than an event, so the first event of a while is fetched at once and what follows
# after ever longer pauses, which the connector's alarm ends; the last one is for when nobody is due for a glance.
_PAUSES = (10, 50, 250, 500)
# The least pause before a glance.
_CALM = 250
# Nanoseconds.
_QUIET = 500 * 10**6
# For so long a birth waits for its end: most lives are over by then, and cheap to take in as a whole.
_PATIENCE = 250 * 10**6
# CPU time that may be spent at once, beyond the share that is allowed.
_CREDIT = 100 * 10**6


class Lifeline:
    """Listens on a thread of its own, with at most a share of one core; with none it hears nothing."""

    def __init__(
        self,
        proc: str,
        interval: float,
        share: float = 0.03,
        buffer: int | None = None,
        members: set[int] | None = None,
        is_sampled: Callable[[int], bool] = lambda pid: False,
    ) -> None:
        """`is_sampled` tells whether the last sample showed a process of that id."""
        self._probe = Probe(proc)
        self._share = share
        self._buffer = buffer
        #: Held by a sample from when it takes over what happened until it has read all who waited for others.
        self.lock = threading.RLock()
        self._is_stopped = False
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pausing, self._waiting = select.poll(), select.poll()
        self._pausing.register(self._wake, select.POLLIN)
        self._waiting.register(self._wake, select.POLLIN)
        #: Births that nothing was done about yet.
        self._pending: list[Event] = []
        self._connector: Connector | None = None
        self._thread: threading.Thread | None = None
        self._budget = _CREDIT
        self._earned = time.monotonic_ns()
        self._spent_until = 0
        self._offset = 0
        self.lives: dict[int, Life] = {}
        self._glances = Glances(self.lives, self._probe, int(2 * interval * 1e9))
        #: Those of `lives` that were born while we listened, by parent.
        self._children: dict[int, set[int]] = {}
        self._reapers = Reapers(self.lives, self._probe, self._has_silent_end)
        self._pidfds = Pidfds()
        #: Whose status a pidfd tells once they are waited for.
        self._untold: list[Death] = []
        self._told = Interval(is_whole=False)
        #: The living descendants of the one command that is recorded; None: everybody is.
        self.members = members
        self._is_sampled = is_sampled
        self.trouble: str | None = None
        self._open()
        self._told.is_whole = self._connector is not None

    def take(self) -> Interval:
        """Everything since the last call, up to now; listens again if that had been given up."""
        with self.lock:
            self._earn()
            self._drain()
            self._ask_pidfds()
            told, self._told = self._told, Interval(is_whole=self._connector is not None)
            told.deaths += self._reapers.take()
            readings, told.readings = told.readings, []
            for one in readings:
                is_early = self._reapers.is_early(one.pid, one.moment)
                (self._told if is_early else told).readings.append(one)
            self._reapers.told_until = clock_gettime_ns(time.CLOCK_BOOTTIME)
            for pid, life in self.lives.items():
                if life.unseen.exits and not life.is_young:
                    told.unseen[pid] = life.unseen
                    life.unseen = Unseen()
            if self._connector is None and self.trouble is None and self._budget >= _CREDIT // 2:
                self._open()
        return told

    def reaped_since(self) -> list[Death]:
        """The deaths that were waited for since `take`."""
        with self.lock:
            self._drain()
            return self._reapers.take()

    def is_behind(self, ended: Iterable[tuple[int, Life | None]], reapers: Iterable[int]) -> bool:
        """Whether the kernel has still to tell of one of these, or of a child that one of the reapers waited for.

        A parent can be faster than the word of its child's end, by milliseconds on a busy processor.
        """
        with self.lock:
            return (
                any(life is not None and self.lives.get(pid) is life for pid, life in ended)
                or any(map(self._has_silent_end, reapers))
            )  # fmt: skip

    def is_unreaped(self, pid: int) -> bool:
        """Whether one with this pid has ended, and nobody has waited for it."""
        with self.lock:
            return self._reapers.unreaped(pid) is not None

    def began(self, pid: int) -> int | None:
        """Ticks after boot at which it was born, of one that lives or that ended since the last sample."""
        with self.lock:
            ended = (death.life for death in (*self._reapers.waiting(), *all_deaths(self._told)))
            life = self.lives.get(pid) or next((life for life in ended if life.pid == pid), None)
        if life is None or not life.born:
            return None
        return life.start_ticks if life.start_ticks >= 0 else life.born // TICK

    def _has_silent_end(self, parent: int) -> bool:
        young = (event[5] for event in self._pending if event[3] == parent)
        return not all(map(is_there, (*self._children.get(parent, ()), *young)))

    def catch_up(self) -> None:
        """Takes in what was told until now."""
        with self.lock:
            self._drain()

    def adopt(self, process: Process) -> Life | None:
        """The life of a process that a sample shows from now on."""
        with self.lock:
            life = self.lives.get(process.pid) or self._reapers.unreaped(process.pid)
            if life is None or not life.may_be(process.start_ticks):
                return None
            life.is_sampled = True
            life.start_ticks, life.name = process.start_ticks, process.comm
            # It may have left its group since it was read, and we may have been told of that already.
            process.pgid = group_of(process.pid) or process.pgid
            life.move(process.pgid)
            return life

    def close(self) -> None:
        """Stops listening."""
        self._is_stopped = True
        os.write(self._waker, b"x")
        if self._thread is not None:
            self._thread.join()
        self._hang_up()
        self._pidfds.leave_all()
        os.close(self._wake)
        os.close(self._waker)

    def _open(self) -> None:
        """Begins to listen; the interval that is under way stays incomplete."""
        self._forget()
        if not self._share:
            self.trouble = "switched off by lifeline.connector: none"
            return
        try:
            self._connector = Connector() if self._buffer is None else Connector(self._buffer)
        except NoConnector as error:
            self.trouble = str(error.strerror)
            return
        self.trouble = None
        self._waiting.register(self._connector, select.POLLIN)
        self._pausing.register(self._connector.alarm, select.POLLIN)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="vmsonar-lifeline", daemon=True)
            self._thread.start()
        else:
            os.write(self._waker, b"x")

    def _hang_up(self) -> None:
        if self._connector is not None:
            self._waiting.unregister(self._connector)
            self._pausing.unregister(self._connector.alarm)
            self._connector.close()
            self._connector = None

    def _forget(self) -> None:
        """What was known of lives is worth nothing after a gap."""
        for life in self.lives.values():
            self._pidfds.leave(life)
        self._pending = []
        self.lives.clear()
        self._children.clear()
        self._glances.clear()
        self._reapers.due.clear()
        self._told.is_whole = False

    def _run(self) -> None:
        self._spent_until = time.thread_time_ns()
        pauses = 0
        while not self._is_stopped:
            with self.lock:
                number = self._drain(is_patient=True)
                self._pay()
                due = self._glances.due
            left = None if not due else max(0, due - clock_gettime_ns(time.CLOCK_BOOTTIME)) // 10**6 + 1
            if number:
                longest = _PAUSES[pauses]
                self._pausing.poll(longest if left is None else min(longest, max(left, _CALM)))
                pauses = min(pauses + 1, len(_PAUSES) - 1)
            elif self._wait(left):
                pauses = 0

    def _wait(self, left: int | None) -> bool:
        """Sleeps so many milliseconds, until something is told, or we are called; whether nothing had come for long."""
        since = time.monotonic_ns()
        if self._pending:
            left = _PAUSES[-1] if left is None else min(left, _PAUSES[-1])
        with self.lock:
            waiting = self._waiting
        for descriptor, _ in waiting.poll(left):
            if descriptor == self._wake:
                os.read(self._wake, 64)
        return time.monotonic_ns() - since > _QUIET

    def _earn(self) -> None:
        now = time.monotonic_ns()
        self._budget = min(_CREDIT, self._budget + int((now - self._earned) * self._share))
        self._earned = now

    def _pay(self) -> None:
        """Gives up until the next sample when listening costs more than it may."""
        now = time.thread_time_ns()
        spent, self._spent_until = now - self._spent_until, now
        self._budget -= spent
        if self._budget < 0:
            self._earn()
        if self._budget < 0 and self._connector is not None:
            self._hang_up()
            self._forget()

    def _drain(self, is_patient: bool = False) -> int:
        """Takes in what has come, but for births that may wait; returns how many events have come."""
        if self._connector is None:
            return 0
        now = clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._offset = now - time.monotonic_ns()
        come = self._connector.read()
        since = now - self._offset - _PATIENCE if is_patient else sys.maxsize
        for event in self._but_brief(self._pending + come, since):
            self._take_in(event)
        if self._connector.lost:
            self._connector.lost = False
            self._forget()
        self._glances.look(now)
        if self._reapers.due:
            self._reapers.read(self._told)
        return len(come)

    def _but_brief(self, events: list[Event], since: int) -> list[Event]:
        """Takes in the children that were born and ended well within these events, and started nobody.

        Most lives are of that kind: nothing need be remembered of them but that their parent's job has them. Births
        since a moment, of which nothing more is known, wait for their end. Returns the rest.
        """
        births: dict[int, int] = {}
        over: set[int] = set()
        ended: set[int] = set()
        for place, event in enumerate(events):
            what, _, task, pid, status, child, _, _ = event
            born = births.pop(pid, None)
            if what == FORK:
                births.pop(child, None)  # of a thread
                if status == child:
                    births[child] = place
            elif what == EXIT:
                ended.add(pid)
                if born is not None and task == pid and not status and self._was_brief(events[born], event):
                    over.update((born, place))
        waiting = [birth for birth in births.values() if events[birth][1] > since]
        young = [birth for birth in waiting if events[birth][3] not in ended]
        self._pending = [events[birth] for birth in young]
        over.update(young)
        return [event for place, event in enumerate(events) if place not in over]

    def _was_brief(self, birth: Event, end: Event) -> bool:
        pid, parent = birth[5], self.lives.get(birth[3])
        if parent is None or end[7] not in (parent.pid, 0) or is_there(pid) or is_group(pid):
            return False  # of a zombie the name can be read
        parent.unseen.count(end[1] - birth[1])
        if self.members is None or parent.pid in self.members:
            self._told.counted[b"", False, parent.pgid, self._called(parent)] += 1
        return True

    def _called(self, parent: Life) -> bytes:
        """The name of a parent, read once."""
        parent.comm = parent.comm or self._probe.text(parent.pid, "comm").rstrip(b"\n")
        return parent.comm

    def _take_in(self, event: Event) -> None:
        what, when, first, second, third, fourth, _, sixth = event
        if what == FORK:
            if third == fourth:
                self._birth(when + self._offset, second, third)
            elif (life := self.lives.get(fourth)) is not None:
                life.threads += 1
                life.most_threads = max(life.most_threads, life.threads)
        elif what == EXIT:
            self._end(when + self._offset, first, second, third, sixth)
        elif (life := self.lives.get(second)) is None:
            return
        elif what == SID:
            life.move(second)
        elif what == UID and third != life.uid:
            life.uid, life.is_others = third, True

    def _birth(self, when: int, parent: int, pid: int) -> None:
        parent_life = self.lives.get(parent)
        pgid = group_of(parent)
        if parent_life is None and pgid:
            # Old processes rarely change their group, and samples say so when they do.
            self.lives[parent] = Life(parent, 0, 0, pgid, threads=0)
        elif parent_life is not None:
            parent_life.move(pgid)  # young ones choose theirs just before they start others
            pgid = parent_life.pgid
        life = self.lives[pid] = Life(pid, when, parent, pgid, pgid, grouped=when)
        if parent_life is not None:
            life.uid = parent_life.uid
        self._children.setdefault(parent, set()).add(pid)
        if self.members is not None and parent in self.members:
            self.members.add(pid)
        self._glances.add(life)
        life.pgid = (
            group_of(pid) or pgid
        )  # a shell gives it a group of its own at once: nothing was used before

    def _end(self, when: int, task: int, pid: int, status: int, reaper: int) -> None:
        life = self.lives.get(pid)
        if life is None:
            life = self.lives[pid] = Life(pid, 0, reaper, group_of(pid), threads=0)
        if not reaper and life.parent:
            # Of one that somebody was very quick to wait for, the kernel no longer knows the parent.
            reaper = life.parent if life.parent in self.lives or is_there(life.parent) else 1
        if life.born:
            life.threads -= 1
        if task == pid:
            life.main_ended, life.main_status = True, status
        elif life.main_ended and status != life.main_status:
            life.same_status = False
        if not life.main_ended:
            return
        if life.threads <= 0 if life.born else self._is_over(pid):
            self._bury(life, when, life.main_status if life.same_status else None, reaper)
        elif task == pid:
            self._pidfds.follow(life)
            if life in self._pidfds and self._probe.ended_stat(life) is None:
                self._pidfds.leave(life)  # too late: this is another process

    def _is_over(self, pid: int) -> bool:
        """Whether a process whose main thread has ended has no other thread left."""
        fields = self._probe.stat(pid) if is_there(pid) else None
        return fields is None or int(fields[1][THREADS]) <= 1

    def _bury(self, life: Life, when: int, status: int | None, reaper: int) -> None:
        del self.lives[life.pid]
        self._glances.drop(life)
        self._leave_parent(life)
        if self.members is not None:
            life.is_member = life.pid in self.members
            self.members.discard(life.pid)
        parent = self.lives.get(reaper)
        death = Death(life, when, reaper, status, parent, "connector" if status is not None else None)
        if is_there(life.pid):
            self._probe.read_last(death)
        elif is_group(life.pid):
            life.move(life.pid)  # it led one that outlives it
        if status is None and life in self._pidfds:
            self._untold.append(death)
        else:
            self._pidfds.leave(life)
            self._tell(death)
        is_own = life.born and reaper == life.parent and not life.is_sampled and not life.has_others
        # Of a zombie more may be known by a sample before somebody waits for it.
        if is_own and parent is not None and death.final is None and self._belongs_to(parent, death):
            parent.unseen.add(life.unseen)
            parent.unseen.add(Unseen(1, *known_and_open(death), life.memory))
            return
        self._reapers.add(death, is_due=parent is None or life.pgid != parent.pgid or life.is_others)
        if parent is not None:
            parent.has_others = True

    def _leave_parent(self, life: Life) -> None:
        siblings = self._children.get(life.parent)
        if siblings is not None:
            siblings.discard(life.pid)
            if not siblings:
                del self._children[life.parent]

    def _belongs_to(self, parent: Life, death: Death) -> bool:
        """Whether its time is its parent's job's in any case, so that nothing more need be known of it."""
        life = death.life
        if life.is_others:
            return False
        if life.pgid == parent.pgid:
            return not life.moves and life.look is None
        if life.pgid != life.pid or is_group(life.pid):
            return False  # another job has members left
        return death.ended - life.born < BRIEF or life.look is None

    def _ask_pidfds(self) -> None:
        for death in [one for one in self._untold if self._reapers.is_reaped(one)]:
            self._untold.remove(death)
            death.status = self._pidfds.status(death.life)
            death.source = None if death.status is None else "pidfd"
            self._pidfds.leave(death.life)
            self._tell(death)

    def _tell(self, death: Death) -> None:
        told, life = self._told, death.life
        if not life.is_member:
            return
        if told.has_event(death, self._is_known(life)):
            if not life.name and life.parent and life.parent == death.reaper:
                death.starter = self._probe.text(life.parent, "comm").rstrip(b"\n")
            told.ends.append(death)
        else:
            parent = None if life.name else self.lives.get(life.parent)
            starter = b"" if parent is None else self._called(parent)
            told.counted[life.name, death.status != 0, life.pgid, starter] += 1

    def _is_known(self, life: Life) -> bool:
        """Whether it has rows: a sample showed it, or it led a job for long enough."""
        is_sampled = life.is_sampled or (not life.born and self._is_sampled(life.pid))
        return is_sampled or (life.pgid == life.pid and life.look is not None)
