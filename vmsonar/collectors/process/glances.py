"""Looks now and then at processes too young for a sample: group, CPU time, memory, and what describes a job."""

from vmsonar.collectors.process.lives import Life, Look
from vmsonar.collectors.process.probes import Probe, group_of
from vmsonar.host.proc_pid import START, ignores_children, parse_sizes

#: A group of its own that lived shorter than this belongs to the job of the process that started it.
BRIEF = 10**9
# Nanoseconds: the age of the first glance, and the time between two. What is shorter belongs to its parent's job.
_FIRST = BRIEF // 2
_EVERY = 10**9


class Glances:
    """The young, until samples know enough of them."""

    def __init__(self, lives: dict[int, Life], probe: Probe, reach: int) -> None:
        """`reach` is the age in nanoseconds at which nobody is young any more."""
        self._lives = lives
        self._probe = probe
        self._reach = reach
        self._young: dict[int, Life] = {}
        #: When the next glance is due; 0 if there is none.
        self.due = 0

    def add(self, life: Life) -> None:
        self._young[life.pid] = life
        life.due = life.born + _FIRST
        self.due = self.due or life.due

    def drop(self, life: Life) -> None:
        self._young.pop(life.pid, None)

    def clear(self) -> None:
        self._young.clear()
        self.due = 0

    def look(self, now: int) -> None:
        """Looks at those whose turn it is."""
        if not self.due or now < self.due:
            return
        following = 0
        for life in list(self._young.values()):
            if life.due <= now:
                self._look_at(life, now)
            if now - life.born > self._reach:
                del self._young[life.pid]
            elif not following or life.due < following:
                following = life.due
        self.due = following

    def _look_at(self, life: Life, now: int) -> None:
        life.due = now + _EVERY
        pgid = group_of(life.pid)
        if not pgid:
            return
        life.move(pgid)
        life.cpu, life.glanced = life.cpu_now(), now
        if life.look is None and not life.is_sampled:
            self._know(life)
        is_deaf_unknown = life.is_deaf is None and life.unseen.exits > 0
        status = self._probe.text(life.pid, "status") if is_deaf_unknown or not life.is_sampled else b""
        if is_deaf_unknown:
            life.is_deaf = ignores_children(status)
        if (sizes := parse_sizes(status)) is not None:
            life.note_sizes(sizes)

    def _know(self, life: Life) -> None:
        """Its name, and of one that has another group or user than its parent what describes a job."""
        found = self._probe.stat(life.pid)
        uid = self._probe.user(life.pid)
        if not life.is_others:
            life.uid = uid
        if found is None or uid is None:
            return
        life.name, life.start_ticks = found[0], int(found[1][START])
        parent = self._lives.get(life.parent)
        if parent is not None and parent.pgid == life.pgid:
            if parent.uid is None:
                parent.uid = self._probe.user(life.parent)
            if parent.uid in (uid, None):
                return
        cmdline, cgroup = self._probe.text(life.pid, "cmdline"), self._probe.text(life.pid, "cgroup")
        life.look = Look(uid, found[0], cmdline, cgroup, int(found[1][3]), int(found[1][4]))
