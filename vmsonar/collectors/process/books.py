"""Brings the kernel's own accounts of ended processes (taskstats) together with the deaths that are known."""

from collections import Counter
from collections.abc import Callable, Iterable

from vmsonar.collectors.process.lives import HERTZ, Death, Interval, Life, Unseen
from vmsonar.collectors.process.model import Process
from vmsonar.collectors.process.wire import Account

#: Finds the process that has, or had, a pid.
Finder = Callable[[int], Process | None]

# An account and the word of the same end are told within this time of each other.
_APART = 10**9
# Nanoseconds to free a byte of memory, on a busy machine.
_FREEING = 10


class Ledger:
    """The accounts of one interval, by pid."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self._by_pid: dict[int, list[Account]] = {}
        for account in accounts:
            if account.is_process:
                self._by_pid.setdefault(account.pid, []).append(account)

    def attach(self, deaths: Iterable[Death]) -> None:
        """Gives each death its account."""
        for death in deaths:
            for account in self._by_pid.get(death.life.pid, ()):
                if _is_of(account, death):
                    death.account = self._take(account)
                    if death.status is None:
                        death.status = account.exit_status
                    break

    def end(self, vanished: Iterable[Process]) -> None:
        """Tells processes whose death nobody told; where the kernel has no connector, that is all of them."""
        for process in vanished:
            if process.death is not None:
                continue
            for account in self._by_pid.get(process.pid, ()):
                if account.may_have_begun(process.start_ticks, HERTZ):
                    life = Life(process.pid, 0, account.ppid, process.pgid, is_member=process.kept)
                    process.death = Death(life, account.ended, account.ppid, account.exit_status)
                    process.death.account, process.death.after = self._take(account), account.ended_after
                    break

    def set_aside(self, is_zombie: Callable[[Account], bool]) -> list[Account]:
        """Takes out the accounts of those that ended and that nobody has waited for yet."""
        waiting = [
            account for accounts in self._by_pid.values() for account in accounts if is_zombie(account)
        ]
        return [self._take(account) for account in waiting]

    def credit_unseen(self, interval: Interval, find: Finder, is_one_command: bool = False) -> None:
        """Credits those who started them with the I/O and peaks of all that no sample saw; tells how they ended.

        Where one command is recorded, nothing is told of those that were started by others.
        """
        parents = {pid: accounts[-1].ppid for pid, accounts in self._by_pid.items() if accounts}
        # A parent's own counters have the bytes of those it waited for.
        read_until = {one.pid: one.moment for one in interval.readings if one.moved is not None}
        silent: dict[int, list[tuple[int, Unseen]]] = {}
        ends = _Ends(interval)
        for accounts in self._by_pid.values():
            for account in accounts:
                parent = _ancestor(account.ppid, parents, find)
                if not is_one_command or (parent is not None and parent.kept):
                    ends.add(account, 0 if parent is None else parent.pgid)
                if parent is None or parent.job is None:
                    continue
                parent.job.memory.note_account(account, parent)
                parent.job.is_dirty = True
                is_read = parent.moved is not None or account.ended <= read_until.get(parent.pid, 0)
                if not is_read and (parent.death is None or parent.death.moved is None):
                    parent.job.credit_io((account.read_bytes, account.write_bytes))
                best = account.user_ns + account.system_ns
                more = max(0, (account.cpu_high_ns or best) - best)
                silent.setdefault(parent.pid, []).append((account.ended, Unseen(1, best, more)))
        ends.tell()
        # What the books say of the unseen is better than what glances saw of them.
        for reading in interval.readings:
            if reading.pid in silent and reading.unseen.exits:
                reading.unseen = _until(reading.moment, silent[reading.pid])
                interval.unseen.setdefault(reading.pid, Unseen(1))
        for pid, unseen in silent.items():
            if pid in interval.unseen:
                interval.unseen[pid] = _until(None, unseen)

    def _take(self, account: Account) -> Account:
        self._by_pid[account.pid].remove(account)
        return account


def _is_of(account: Account, death: Death) -> bool:
    """Whether an account is of that life; freeing much memory lies between it and the word of the end."""
    if account.ended_after - _APART > death.ended:
        return False
    if not death.life.born or account.elapsed is None:
        return death.ended <= account.ended + _APART + (account.peak_rss or 0) * _FREEING
    return abs(account.ended - account.elapsed - death.life.born) <= _APART


def _until(moment: int | None, told: list[tuple[int, Unseen]]) -> Unseen:
    """Takes out what ended until a moment."""
    found = Unseen()
    for one in [one for one in told if moment is None or one[0] <= moment]:
        told.remove(one)
        found.add(one[1])
    return found


class _Ends:
    """The ends that nobody told of but the books, where the lifeline was deaf for a while."""

    def __init__(self, interval: Interval) -> None:
        self._interval = interval
        self._heard = {(death.life.pid, death.ended // _APART) for death in interval.ends}
        self._counted: Counter[tuple[bytes, bool, int, bytes]] = Counter()

    def add(self, account: Account, pgid: int) -> None:
        """One that no sample saw; its group is taken to be its parent's."""
        if self._interval.is_whole or self._is_heard(account):
            return
        name = account.name.encode("utf-8", "surrogateescape")
        life = Life(account.pid, 0, account.ppid, pgid, name=name)
        death = Death(life, account.ended, account.ppid, account.exit_status)
        death.account = account
        if self._interval.has_event(death, is_known=False):
            self._interval.ends.append(death)
        else:
            self._counted[name, death.status != 0, pgid, b""] += 1

    def _is_heard(self, account: Account) -> bool:
        second = account.ended // _APART
        return any((account.pid, second + near) in self._heard for near in (-1, 0, 1))

    def tell(self) -> None:
        """Of those that are only counted the lifeline may have heard some: whoever knows of more is right."""
        for failed in (False, True):
            books, heard = (
                {key: number for key, number in counts.items() if key[1] == failed}
                for counts in (self._counted, self._interval.counted)
            )
            if sum(books.values()) > sum(heard.values()):
                self._interval.counted = self._interval.counted - Counter(heard) + Counter(books)


def _ancestor(pid: int, parents: dict[int, int], find: Finder) -> Process | None:
    """The next process above that is known: those in between ended unseen as well."""
    seen: set[int] = set()
    while pid not in seen:
        seen.add(pid)
        if (process := find(pid)) is not None:
            return process
        if pid not in parents:
            return None
        pid = parents[pid]
    return None
