"""Those who wait for their children: deaths that nobody has waited for yet, and what a parent then has."""

from collections.abc import Callable
from time import CLOCK_BOOTTIME, clock_gettime_ns

from vmsonar.collectors.process.lives import Death, Interval, Life, Reading, Unseen, used
from vmsonar.collectors.process.probes import Probe, is_there
from vmsonar.host.proc_pid import CHILD_MAJOR, CHILD_SYSTEM, CHILD_USER, START

# A parent is read again while more of its children are waited for.
_ROUNDS = 4


class Reapers:
    """Keeps each death until its parent has waited for it, and reads parents that are due."""

    def __init__(self, lives: dict[int, Life], probe: Probe, has_silent_end: Callable[[int], bool]) -> None:
        """`has_silent_end` says of a parent whether one of its children is gone and its end was not told yet."""
        self._lives = lives
        self._probe = probe
        self._has_silent_end = has_silent_end
        self._dead: list[Death] = []
        #: Parents that must be read as soon as they have waited: the child was of another job.
        self.due: set[int] = set()
        #: When a sample last took all of them, CLOCK_BOOTTIME.
        self.told_until = 0

    def add(self, death: Death, is_due: bool) -> None:
        self._dead.append(death)
        if is_due:
            self.due.add(death.reaper)

    def is_reaped(self, death: Death) -> bool:
        """Whether somebody has waited for it, or nobody had to."""
        return death.life.pid in self._lives or not is_there(death.life.pid)

    def waiting(self) -> list[Death]:
        """The deaths that nobody has waited for, or that no sample was told of."""
        return self._dead

    def unreaped(self, pid: int) -> Life | None:
        """The life of a zombie."""
        return next((death.life for death in self._dead if death.life.pid == pid), None)

    def is_early(self, pid: int, moment: int) -> bool:
        """Whether what ended below it then is told with the first sample that shows it: a parent, and born too late."""
        life = self._lives.get(pid) or self.unreaped(pid)
        return life is not None and life.is_young and moment > self.told_until

    def take(self, below: set[int] | None = None) -> list[Death]:
        """Takes out the deaths that were waited for: below these parents, or below all that samples can know."""
        gone = {death for death in self._dead if self.is_reaped(death)}
        if below is not None:
            gone = {death for death in gone if death.reaper in below}
        told = [death for death in self._dead if death in gone]
        self._dead = [death for death in self._dead if death not in gone]
        while below is None and (
            early := {death for death in told if self.is_early(death.reaper, death.ended)}
        ):
            # Its parent is told later, so what ended below these is too.
            told = [death for death in told if death not in early]
            self._dead += early
        return told

    def read(self, told: Interval) -> None:
        """Reads the parents that are due and have waited, each until nothing more has ended below it."""
        by_reaper: dict[int, list[Death]] = {}
        # Deaths below other parents wait: they belong to the next reading of theirs.
        for death in self.take(self.due):
            by_reaper.setdefault(death.reaper, []).append(death)
        for pid, deaths in by_reaper.items():
            self._read(pid, deaths, told)
        self.due = {death.reaper for death in self._dead} & self.due

    def _read(self, pid: int, deaths: list[Death], told: Interval) -> None:
        for _ in range(_ROUNDS):
            found, moved = self._probe.stat(pid), self._probe.io(pid)
            moment = clock_gettime_ns(CLOCK_BOOTTIME)
            more = self.take({pid})
            deaths += more
            if not more:
                break
        if found is None:
            told.deaths += deaths
            return
        if self._has_silent_end(pid):
            self._dead += deaths  # the rise holds more than we were told of: read again when we know
            return
        life = self._lives.get(pid)
        unseen = Unseen()
        if life is not None:
            unseen, life.unseen = life.unseen, unseen
            life.start_ticks = int(found[1][START])
        reaped = used(found[1], CHILD_USER, CHILD_SYSTEM, CHILD_MAJOR)
        told.readings.append(Reading(pid, int(found[1][START]), reaped, moved, deaths, unseen, moment))
