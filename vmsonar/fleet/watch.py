"""Watches the machines of a fleet and has told what begins and what is over; what was told outlives a restart.

One collector of a fleet watches: the one that holds state/watch.lock.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import msgspec
from vmsonar_archive.read.idleness import Activity, idleness
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, VmsonarError
from vmsonar_archive.write.lock import try_lock

from vmsonar.config.shipping import FleetSection
from vmsonar.daemon.log import Log
from vmsonar.fleet.holdings import Holding, Holdings
from vmsonar.fleet.hooks import Messenger, Notice, Teller
from vmsonar.fleet.machines import State, last_minutes, lost_at, state_of
from vmsonar.fleet.store import Fleet

# After so long without a look nobody listened, and silence is no sign.
_DEAF = timedelta(minutes=2)
_EVERY = timedelta(seconds=5)
# Whoever begins to watch an old fleet does not want to hear of machines that went long ago.
_NEWS = timedelta(days=7)
_JUDGED_AT_ONCE = 5
_MOST_DETAILS = 20
# What one look may take of the time for taking in: a farewell is looked for in 20 ms, a likely cause in half a second.
_LOOK_SECONDS = 1.0
_ENDS_AT_ONCE = 3
# A way that is out of order is tried that long.
_TRIED = timedelta(days=1)


class _Watched(msgspec.Struct, kw_only=True):
    """What outlives a restart."""

    looked: datetime | None = None
    #: Since when somebody listens without a break.
    listening: datetime | None = None
    #: What was told and is not over, by its key.
    open: dict[str, Notice] = {}
    #: What is still to be told, and which way.
    waiting: list[tuple[str, Notice]] = []
    #: When each machine was judged last.
    judged: dict[str, datetime] = {}
    #: When each source of ours last failed or did not keep up.
    deaf: dict[str, datetime] = {}


class Watch:
    """Looks at all machines whenever it is asked to, and tells what changed."""

    def __init__(self, fleet: Fleet, settings: FleetSection, log: Log, now: Callable[[], datetime]) -> None:
        self._fleet = fleet
        self._settings = settings
        self._log = log
        self._now = now
        teller = Teller(settings.hooks)
        self._messengers = {way: Messenger(partial(teller.tell, way)) for way in teller.ways}
        self._troubles: dict[str, str | None] = {}
        self._lock: int | None = None
        self._place = fleet.state / "watch.now"
        self._due: datetime | None = None
        self._watched = _Watched()
        configured = settings.watch.shipping
        self._shipping = None if configured is None else timedelta(seconds=float(configured))
        self._notes = Holdings(fleet)
        self._heard: dict[str, datetime] = {}
        #: Machines of which there is nothing to say until they are heard again: how they went is known.
        self._settled: dict[str, Holding] = {}

    def look(self, deaf: Iterable[str] = ()) -> None:
        """Does nothing while another collector of the fleet watches, or where nobody is to be told.

        `deaf`: origins that we cannot hear now; the silence of machines that come by them is ours.
        """
        now = self._now()
        if not self._messengers or (self._due is not None and now < self._due) or not self._is_ours():
            return
        self._due = now + _EVERY
        watched = self._watched
        if watched.looked is None or now - watched.looked > _DEAF:
            watched.listening = now
        before, watched.looked = watched.looked, now
        watched.deaf |= dict.fromkeys(deaf, now)
        found = {notice.key: notice for notice in self._found(now)}
        changed = bool(watched.waiting)
        for key, notice in list(watched.open.items()):
            if self._is_over(notice, key in found):
                changed = True
                self._tell(msgspec.structs.replace(notice, over=True, time=now, details=[]))
                del watched.open[key]
        for key in found.keys() - watched.open.keys():
            changed = True
            self._tell(found[key])
            watched.open[key] = found[key]
        self._send(now)
        if changed or before is None or now.minute != before.minute:
            with files.AtomicFile(self._place, durable=changed) as file:
                file.write(msgspec.json.encode(watched))

    def _is_ours(self) -> bool:
        if self._lock is not None:
            return True
        self._lock = try_lock(self._fleet.state / "watch.lock")
        if self._lock is None:
            return False
        with suppress(OSError, *NOT_JSON):
            self._watched = msgspec.json.decode(self._place.read_bytes(), type=_Watched)
        return True

    def _found(self, now: datetime) -> Iterator[Notice]:
        """What is the case now; of machines that are not judged at this look nothing but whether they are lost."""
        left, kinds = _JUDGED_AT_ONCE, self._settings.hooks.on
        self._judged_now: set[str] = set()
        self._ends, self._end = _ENDS_AT_ONCE, time.monotonic() + _LOOK_SECONDS
        notes = self._notes.read()
        self._heard = {one.archive: one.arrivals[-1] for one in notes if one.arrivals}
        known = {one.archive for one in notes}
        self._settled = {name: one for name, one in self._settled.items() if name in known}
        self._watched.judged = {name: at for name, at in self._watched.judged.items() if name in known}
        self._watched.open = {key: one for key, one in self._watched.open.items() if one.archive in known}
        for holding in notes:
            is_settled = self._settled.get(holding.archive) is holding
            if "lost" in kinds and not is_settled and self._is_due(holding, now):
                yield from self._lost(holding, now)
                self._settled[holding.archive] = holding
            before = self._watched.judged.get(holding.archive)
            again = timedelta(seconds=float(self._settings.watch.judge))
            is_new = bool(holding.arrivals) and (before is None or holding.arrivals[-1] > before)
            if left > 0 and is_new and (before is None or now - before >= again):
                left -= 1
                self._watched.judged[holding.archive] = now
                self._judged_now.add(holding.archive)
                yield from self._judged(holding, now)

    def _is_due(self, holding: Holding, now: datetime) -> bool:
        """Whether it was silent for long enough; of thousands that go at once, some at each look."""
        deaf = self._watched.deaf.get(holding.origin)
        listening = max(filter(None, (self._watched.listening, deaf)), default=None)
        due = lost_at(holding, self._shipping, listening)
        return due is not None and now > due and time.monotonic() < self._end

    def _lost(self, holding: Holding, now: datetime) -> Iterator[Notice]:
        notice = Notice(
            kind="lost", archive=holding.archive, host=holding.host, time=now, says="gone without a word"
        )
        told, heard = self._watched.open.get(notice.key), self._heard.get(holding.archive, holding.latest)
        is_told = told is not None and not self._is_over(told, False)
        if is_told or heard is None or now - heard > _NEWS:
            return
        state = state_of(self._fleet, holding, now, shipping=self._shipping)
        if state.state is not State.LOST:
            return
        evidence = [f"{state.ended}: {state.evidence}"] if state.ended else []
        notice.details = [f"last heard {heard:%F %T} UTC", *evidence]
        if self._ends > 0:
            self._ends -= 1
            end = last_minutes(self._fleet, holding.archive, holding.latest)
            notice.says = f"gone without a word; {end.cause}"
            notice.details = [*notice.details, *end.signs][:_MOST_DETAILS]
        else:
            notice.says = "gone without a word, as several others at this moment; why was not looked into"
        yield notice

    def _judged(self, holding: Holding, now: datetime) -> Iterator[Notice]:
        kinds = self._settings.hooks.on
        idle = self._settings.watch.idle
        latest = holding.latest
        if "idle" in kinds and idle is not None and latest is not None:
            span = timedelta(seconds=float(idle))
            with suppress(OSError, VmsonarError):
                # Up to its last record: what it did since is not known yet.
                answer = idleness(self._fleet.archive(holding.archive), span, latest)
                if answer.activity is Activity.IDLE:
                    says = f"idle for {idle / 60:.0f} minutes: {answer.why}"
                    yield Notice(kind="idle", archive=holding.archive, host=holding.host, time=now, says=says)
        if latest is not None and {"problem", "disk_will_fill"} & set(kinds):
            for notice in self._verdicts(holding, latest, now):
                if notice.kind in kinds:
                    yield notice

    def _verdicts(self, holding: Holding, latest: datetime, now: datetime) -> Iterator[Notice]:
        # Here, because it loads the database.
        from vmsonar_inspect.inspection.opening import opened
        from vmsonar_inspect.inspection.recorded import InspectionSettings
        from vmsonar_inspect.tables.where import TimeFrame

        span = max(timedelta(seconds=2 * float(self._settings.watch.judge)), timedelta(hours=2))
        settings = InspectionSettings(frame=TimeFrame(latest - span, latest + timedelta(seconds=1)))
        try:
            with opened(
                [self._fleet.archive(holding.archive)], settings, deep=False, quiet=True
            ) as inspection:
                verdicts = inspection.verdicts(holding.archive)
        except (OSError, VmsonarError) as error:
            self._log.warning(f"{holding.host or holding.archive} cannot be judged: {error}")
            return
        for verdict in verdicts:
            is_disk = verdict.rule == "disk_will_fill"
            if is_disk or verdict.severity == "problem":
                yield Notice(
                    kind=verdict.rule if is_disk else "problem",
                    archive=holding.archive,
                    host=holding.host,
                    subject=f"{verdict.rule} {verdict.subject}",
                    time=now,
                    says=f"{verdict.name} {verdict.title}: {verdict.says}",
                    details=[verdict.advice],
                )

    def _is_over(self, notice: Notice, is_found: bool) -> bool:
        """A lost machine is back when it was heard; a verdict is over when the machine was judged again without it."""
        if notice.kind == "lost":
            heard = self._heard.get(notice.archive)
            return heard is not None and heard > notice.time
        return not is_found and notice.archive in self._judged_now

    def _tell(self, notice: Notice) -> None:
        self._log.info(notice.title())
        self._watched.waiting += [(way, notice) for way in self._messengers]

    def _send(self, now: datetime) -> None:
        waiting = self._watched.waiting
        left: list[tuple[str, Notice]] = []
        for way, messenger in self._messengers.items():
            mine = [notice for other, notice in waiting if other == way]
            later = messenger.tell(mine, now)
            if messenger.trouble not in (None, self._troubles.get(way)):
                self._log.warning(f"{messenger.trouble}; tried again for a day")
            self._troubles[way] = messenger.trouble
            left += [(way, one) for one in later if now - one.time < _TRIED]
        self._watched.waiting = left

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
