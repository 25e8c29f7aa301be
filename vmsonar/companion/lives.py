"""Follows each life of a container by its control group, for the figures that vanish with the group.

A group is found when it is made (inotify) or when the engine names its first process. One process of it after the
other is held by a descriptor (pidfd_open(2)); when none is left, the group is read once more. A runtime takes some
milliseconds to remove it. Where that was too late, the last reading is a lower bound.
"""

import os
import select
from collections import Counter
from dataclasses import dataclass, field

from vmsonar_archive.records import ContainerRow

from vmsonar.collectors.container.cgroup import Descriptors, GroupReader, Hierarchies, end_row
from vmsonar.companion.births import Births
from vmsonar.companion.parents import Parent, Share
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host

_SECOND = 1_000_000_000
# A new group is empty for some milliseconds; one that stays so is none of ours.
_BIRTH_PAUSE = 0.01
_BIRTH_PATIENCE = 5 * _SECOND
# Until the recorder has surely sampled it: how often its figures are noted, should the end be missed.
_YOUNG = 12 * _SECOND
_YOUNG_PAUSE = 1.0
# How long the engine may take to tell of an end before the row goes without its word.
_ENGINE_PATIENCE = 10 * _SECOND
_IDLE = 60.0
_SETUP = _SECOND


@dataclass(slots=True, eq=False)
class Life:
    """One life of a container, from the making of its group."""

    container_id: str
    path: str
    reader: GroupReader[ContainerRow]
    began: int
    read_at: int
    #: The process that is held now, and those that were.
    descriptor: int = -1
    followed: set[int] = field(default_factory=set)
    #: The engine has told of its end already.
    is_told: bool = False


class Lives:
    """All lives that go on, and those that ended until the engine has told of it."""

    def __init__(self, host: Host, limit: int, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._proc = host.proc
        self._hierarchies = Hierarchies(host)
        self._descriptors = Descriptors(limit)
        self._limit = limit // 4
        self._births = Births(str(self._hierarchies.root) if self._hierarchies.root else None)
        self._epoll = select.epoll()
        if self._births.fileno() >= 0:
            self._epoll.register(self._births.fileno(), select.EPOLLIN)
        #: Groups that were made and in which nothing runs yet: since when, and whose.
        self._new: dict[str, tuple[int, str]] = {}
        self._parents: dict[str, Parent] = {}
        self._open: dict[str, Life] = {}
        self._held: dict[int, Life] = {}
        #: Rows of lives that ended, oldest first, and of how many the engine has yet to tell.
        self._ended: dict[str, list[ContainerRow]] = {}
        self._early: Counter[str] = Counter()
        #: The engine's last word about each start, after boot.
        self._starts: dict[str, int] = {}

    def fileno(self) -> int:
        """Readable when `attend` has something to do."""
        return self._epoll.fileno()

    def pause(self) -> float:
        """How many seconds `attend` can wait for, at most."""
        if self._new:
            return _BIRTH_PAUSE
        now = self._clock.boottime_ns()
        is_restless = self._ended or any(self._is_restless(life, now) for life in self._open.values())
        return _YOUNG_PAUSE if is_restless else _IDLE

    def attend(self) -> list[ContainerRow]:
        """Looks after births and ends; returns the rows of ends that the engine is slow to tell of."""
        for descriptor, _ in self._epoll.poll(0):
            if descriptor in self._held:
                self._process_ended(self._held.pop(descriptor))
            else:
                self._note_births()
        now = self._clock.boottime_ns()
        for path in list(self._new):
            self._try_birth(path, now)
        for life in [life for life in self._open.values() if self._is_restless(life, now)]:
            # Seldom and seldomer: what matters is the share of its life that goes unread.
            if now - life.read_at >= max(_YOUNG_PAUSE * _SECOND, (now - life.began) // 2):
                self._glance(life, now)
        return self._overdue(now)

    def found(self, container_id: str, pid: int) -> bool:
        """Follows a container by the process that the engine named; False if that one is not in it."""
        if self.look(container_id):
            return True  # it runs: by now the runtime has made all its groups and written the limits
        group = self._hierarchies.of_process(pid, container_id)
        if group is None:
            return False
        began = self._start_of(pid) or self._clock.boottime_ns()
        self._births.watch(group.path.rpartition("/")[0])
        return self._begin(container_id, group.path, [pid], began)

    def look(self, container_id: str) -> bool:
        """Reads a container now, as when the kernel kills in it; False if it is not followed."""
        life = self._open.get(container_id)
        if life is not None:
            self._glance(life, self._clock.boottime_ns())
        return life is not None

    def started(self, container_id: str, wall_ns: int) -> None:
        self._starts[container_id] = self._after_boot(wall_ns)

    def died(self, container_id: str, wall_ns: int) -> ContainerRow | None:
        """The row of the life whose end the engine tells of; None if it was told already or is not over yet."""
        end = self._after_boot(wall_ns)
        rows = self._ended.get(container_id)
        if rows:
            row = rows.pop(0)
            if not rows:
                del self._ended[container_id]
            return self._dated(row)
        if self._early[container_id]:
            self._early[container_id] -= 1
            return None
        life = self._open.get(container_id)
        if life is not None and life.began < end:
            # Processes are left, or there is no room for a descriptor: the group's own end will tell.
            life.is_told = True
            return None
        start = self._starts.get(container_id)
        row = ContainerRow(container_id=container_id)
        if start is None or start > end:
            return None
        # The runtime works in the group before the engine tells of a start.
        return self._dated(end_row(row, end, "events", start - _SETUP))

    def forget(self, container_id: str) -> None:
        """The engine has removed a container."""
        self._starts.pop(container_id, None)
        self._early.pop(container_id, None)

    def close(self) -> None:
        for life in list(self._open.values()):
            life.reader.close()
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()
        self._births.close()
        self._epoll.close()

    def _note_births(self) -> None:
        now = self._clock.boottime_ns()
        for container_id, path in self._births.take():
            if container_id is not None:
                self._new[path] = (now, container_id)
            elif parent := self._parents.get(path.rpartition("/")[0]):
                parent.spoil()

    def _try_birth(self, path: str, now: int) -> None:
        made, container_id = self._new[path]
        before = self._open.get(container_id)
        if before is not None and before.path == path and before.began < made:
            self._finish(before)
        pids = _processes(f"{self._hierarchies.root}{path}")
        is_known = container_id in self._open or bool(pids and self._begin(container_id, path, pids, made))
        if is_known or pids is None or now - made > _BIRTH_PATIENCE:
            del self._new[path]
            if not is_known and (parent := self._parents.get(path.rpartition("/")[0])):
                parent.spoil()

    def _begin(self, container_id: str, path: str, pids: list[int], began: int) -> bool:
        group = self._hierarchies.at_path(path)
        if group is None or len(self._open) >= self._limit:
            return False
        reader = GroupReader(ContainerRow(container_id=container_id), group, self._descriptors)
        life = Life(container_id, path, reader, began, read_at=began)
        self._open[container_id] = life
        self._parent_of(life)
        self._glance(life, self._clock.boottime_ns())
        if container_id in self._open:
            self._follow_or_finish(life, pids)
        return True

    def _is_restless(self, life: Life, now: int) -> bool:
        """Whether its figures are noted now and then: it is young, or its end is overdue."""
        return life.is_told or now - life.began < _YOUNG

    def _glance(self, life: Life, now: int) -> None:
        if life.reader.settling:
            # With v1 the runtime makes one group after the other.
            group = self._hierarchies.at_path(life.path)
            if group is not None:
                life.reader.add(group)
        if life.reader.read(everything=False) or life.reader.counted:
            life.read_at = now
        elif _processes(life.reader.folder) is None:
            self._finish(life)

    def _follow(self, life: Life, pids: list[int]) -> bool:
        """Holds the first of these processes that lives."""
        for pid in pids:
            if pid in life.followed:
                continue
            life.followed.add(pid)
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            life.descriptor = descriptor
            self._held[descriptor] = life
            self._epoll.register(descriptor, select.EPOLLIN)
            return True
        return False

    def _process_ended(self, life: Life) -> None:
        self._let_go(life)
        self._follow_or_finish(life, _processes(life.reader.folder))

    def _follow_or_finish(self, life: Life, pids: list[int] | None) -> None:
        """Holds a process of the group; where none is left, or the same ones only as zombies, it is over."""
        while pids and not life.followed.issuperset(pids):
            if self._follow(life, pids):
                return
            # A runtime forks its way into a container: those that were listed are gone, their child is there.
            pids = _processes(life.reader.folder)
        self._finish(life)

    def _let_go(self, life: Life) -> None:
        if life.descriptor >= 0:
            self._held.pop(life.descriptor, None)
            self._epoll.unregister(life.descriptor)
            os.close(life.descriptor)
            life.descriptor = -1

    def _finish(self, life: Life) -> None:
        """The last reading, right after the last process."""
        life.reader.read(everything=True)
        now = self._clock.boottime_ns()
        self._let_go(life)
        life.reader.close()
        del self._open[life.container_id]
        row = life.reader.row
        row.start_boottime = life.began
        end_row(row, now, "final" if life.reader.counted else "reading", life.read_at)
        if row.cgroup_inode is not None:
            self._ask_parent(row, self._parent_of(life).settle(row.cgroup_inode))
        self._ended.setdefault(life.container_id, []).append(row)
        if life.is_told:
            self._early[life.container_id] -= 1

    def _parent_of(self, life: Life) -> Parent:
        path = life.path.rpartition("/")[0]
        parent = self._parents.get(path)
        if parent is None:
            parent = self._parents[path] = Parent(life.reader.folder.rpartition("/")[0])
        if life.reader.row.cgroup_inode is not None:
            parent.expect(life.reader.row.cgroup_inode)
        return parent

    def _ask_parent(self, row: ContainerRow, share: Share) -> None:
        """Completes the CPU time of a life that was last read before its end."""
        if row.cpu_source == "final" or share.most is None:
            return
        if share.exact and self._births.fileno() >= 0 and share.most >= (row.cpu_time or 0):
            row.cpu_time, row.cpu_time_high, row.cpu_source = share.most, None, "parent"
        elif row.cpu_time_high is not None:
            row.cpu_time_high = max(row.cpu_time or 0, min(row.cpu_time_high, share.most))

    def _overdue(self, now: int) -> list[ContainerRow]:
        """Rows that wait for no word of the engine: it has told already, or takes too long."""
        found = []
        for container_id, rows in list(self._ended.items()):
            while rows and (
                self._early[container_id] < 0 or now - (rows[0].end_boottime or 0) > _ENGINE_PATIENCE
            ):
                self._early[container_id] += 1
                found.append(self._dated(rows.pop(0)))
            if not rows:
                del self._ended[container_id]
        return found

    def _dated(self, row: ContainerRow) -> ContainerRow:
        """The engine's start counts where it lies within: a group is made well before the program starts in it."""
        start, end = self._starts.get(row.container_id), row.end_boottime or 0
        if start is not None and (row.start_boottime or 0) <= start < end:
            row.start_boottime = start
        return row

    def _after_boot(self, wall_ns: int) -> int:
        return self._clock.boottime_ns() - (self._clock.wall_ns() - wall_ns)

    def _start_of(self, pid: int) -> int | None:
        """The start of a process after boot; field 22 of proc_pid_stat(5)."""
        try:
            words = (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            return int(words[19]) * _SECOND // os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return None


def _processes(folder: str) -> list[int] | None:
    """The processes of a group; None when the group is gone."""
    try:
        with open(f"{folder}/cgroup.procs", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return None
