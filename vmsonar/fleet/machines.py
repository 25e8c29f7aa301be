"""Who is alive, late, gone in order, or gone without a word: judged by when each machine was heard last."""

from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import median_low

import msgspec
from vmsonar_archive.read.endings import Ending, MachineEnd, last_tail, machine_end
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.fleet.holdings import Holding
from vmsonar.fleet.store import Fleet

#: A machine that ships so many times its interval late is late; three intervals without a word, and it is lost.
_LATE, _LOST = 1.5, 3.0
#: How often machines ship, as long as nothing is known of it: the increment timer's interval.
USUAL = timedelta(minutes=15)
#: How far the last minutes reach back.
_LAST_MINUTES = timedelta(minutes=10)
_MOST_WORDS = 8
_ORDERLY = (Ending.ORDERLY_POWEROFF, Ending.RECLAIM_NOTICE, Ending.STOPPED)


class State(StrEnum):
    """What is known of a machine now."""

    ALIVE = "alive"
    LATE = "late"
    GONE = "gone"
    LOST = "lost"


class MachineState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One machine now."""

    archive: str
    host: str | None = None
    state: State
    #: When it was heard last, of what time its last record is, and how often it ships.
    heard: datetime | None = None
    last: datetime | None = None
    interval: float
    #: How its last boot ended, as far as its records tell, and the evidence.
    ended: str | None = None
    evidence: str | None = None


def interval_of(holding: Holding, configured: timedelta | None) -> timedelta:
    """How often a machine ships: as configured, or the median of what came lately.

    By how far its records went on each time: a backlog comes within seconds.
    """
    if configured is not None:
        return configured
    gaps = [later - earlier for earlier, later in pairwise(holding.reached) if later > earlier]
    return max(median_low(gaps), timedelta(seconds=1)) if len(gaps) > 1 else USUAL


def lost_at(holding: Holding, shipping: timedelta | None, listening: datetime | None) -> datetime | None:
    """Until when a machine cannot be lost unless it says nothing more; None where nothing is known of it."""
    since = max(filter(None, (_heard(holding), listening)), default=None)
    return None if since is None else since + _LOST * interval_of(holding, shipping)


def _heard(holding: Holding) -> datetime | None:
    return holding.arrivals[-1] if holding.arrivals else holding.latest


def state_of(
    fleet: Fleet,
    holding: Holding,
    now: datetime,
    *,
    shipping: timedelta | None = None,
    listening: datetime | None = None,
) -> MachineState:
    """What is known of a machine. `listening`: since when there was somebody to hear it; before, silence is ours."""
    interval = interval_of(holding, shipping)
    heard = _heard(holding)
    since = max(filter(None, (heard, listening)), default=now)
    silent = now - since
    found = MachineState(
        archive=holding.archive,
        host=holding.host,
        state=judged(silent, interval, None),
        heard=heard,
        last=holding.latest,
        interval=interval.total_seconds(),
    )
    if found.state is not State.ALIVE and (end := last_end(fleet.archive(holding.archive))) is not None:
        found.ended, found.evidence = end.how.value, end.evidence
        found.state = judged(silent, interval, end.how)
    return found


def judged(silent: timedelta, interval: timedelta, end: str | None) -> State:
    """What a silence means, where a machine ships that often and its records tell of that end."""
    if silent <= _LATE * interval:
        return State.ALIVE
    if end in _ORDERLY:
        return State.GONE
    return State.LOST if silent > _LOST * interval else State.LATE


def last_end(root: Path) -> MachineEnd | None:
    """How the last boot ended, by the last segment; None where nothing can be read."""
    with suppress(OSError, VmsonarError):
        tail = last_tail(root)
        return None if tail is None else machine_end(tail, followed=False)
    return None


class LastMinutes(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The end of a machine that was lost."""

    #: The likely cause in words, and what speaks for it.
    cause: str
    signs: list[str] = []


def last_minutes(fleet: Fleet, archive: str, last: datetime | None) -> LastMinutes:
    """The likely cause of a machine's silence, by what went wrong in its last minutes."""
    # Here, because it loads the database.
    from vmsonar_inspect.inspection.opening import opened
    from vmsonar_inspect.inspection.recorded import InspectionSettings
    from vmsonar_inspect.tables.where import TimeFrame

    nothing = LastMinutes(
        cause="its records show nothing unusual: the network, a power cut, or deleted from outside"
    )
    if last is None:
        return nothing
    settings = InspectionSettings(frame=TimeFrame(last - _LAST_MINUTES, last + timedelta(seconds=1)))
    try:
        with opened([fleet.archive(archive)], settings, deep=False, quiet=True) as inspection:
            about = inspection.machine_advice(archive)
            problems = [
                f"{verdict.title}: {verdict.says}"
                for verdict in about.verdicts
                if verdict.severity == "problem"
            ]
            wrong = [
                f"{event.time:%H:%M:%S} {event.what or event.event}" for event in inspection.wrong(archive)
            ]
            use = inspection.node_use[archive]
    except (OSError, VmsonarError) as error:
        return LastMinutes(cause=f"its records cannot be read: {error}")
    memory = use.memory_bytes.peak
    total = use.memory_total_bytes
    if use.oom_kills:
        cause = f"out of memory: the kernel killed {use.oom_kills} in its last minutes"
    elif memory is not None and total and memory > 0.95 * total:
        cause = f"most likely out of memory: {memory / total:.0%} of it was in use"
    elif problems:
        cause = f"perhaps {problems[0]}"
    else:
        return LastMinutes(cause=nothing.cause, signs=wrong[:_MOST_WORDS])
    return LastMinutes(cause=cause, signs=[*problems, *wrong][:_MOST_WORDS])
