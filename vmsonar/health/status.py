"""Judges the recorder's health from the archive, its lock, and the process that holds it."""

import os
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import field
from vmsonar_archive.format.layout import ARCHIVE_FILE, SAMPLE
from vmsonar_archive.read.reader import Archive, last_sample, open_archive
from vmsonar_archive.records import CostRow, EventRow, GapRow, Stamp
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.write.budget import Budget, free_bytes
from vmsonar_archive.write.lock import holder

from vmsonar.forward.state import ForwardStatus, read_status

_WINDOW = timedelta(hours=1)
# A recorder that is a few ticks behind on a busy machine is not ill.
_PATIENCE_TICKS = 3
_PATIENCE = timedelta(seconds=5)
# What cannot be seen here for as long as nobody changes the machine: doctor's business, not an error.
_BLIND_SPOTS = frozenset(
    {
        "permission", "missing", "unsupported", "hidepid", "no_meter", "not_measuring",
        "engine_no_sdk", "engine_permission", "missing_extra", "library_not_found", "no_permission",
    }
)  # fmt: skip
_OF_A_DAEMON = frozenset({"daemon_start", "daemon_stop"})


class Brief(Stamp, kw_only=True):
    """The rows of a sample about the recorder itself; the rest is not decoded."""

    event: list[EventRow] = field(default_factory=list)
    gap: list[GapRow] = field(default_factory=list)
    cost: list[CostRow] = field(default_factory=list)


class Error(msgspec.Struct, kw_only=True):
    """One thing that went wrong."""

    time: datetime
    collector: str
    reason: str
    detail: str | None = None


class Status(msgspec.Struct, kw_only=True):
    """The answer of `vmsonar status --json`; fields may be added, never removed."""

    healthy: bool = False
    problems: list[str] = []
    archive: str
    archive_id: str
    mode: str
    pid: int | None = None
    running_since: datetime | None = None
    interval: float | None = None
    last_sample: datetime | None = None
    last_sample_age: float | None = None
    samples: int = 0
    samples_lost: int = 0
    #: Ticks of the last hour at which no sample was taken.
    ticks_missed: int = 0
    segments: int = 0
    size: int = 0
    budget: int = 0
    free: int = 0
    journal_lines: int = 0
    journal_head: str = ""
    cpu_share: float | None = None
    errors: list[Error] = []
    #: How forwarding does, where there is any.
    forward: ForwardStatus | None = None
    #: When the last daemon was told to stop and did; null while one runs, and after any other end.
    stopped: datetime | None = None


def status(root: Path, budget: Budget, now: datetime, forward_state: Path | None = None) -> Status:
    """Looks at an archive, at whoever writes it, and at whoever sends it on."""
    _check_there(root)
    with open_archive(root) as archive:
        recent = list(_recent(archive, now - _WINDOW))
        pid = holder(root)
        answer = Status(
            archive=str(root),
            archive_id=archive.identity.archive,
            mode="daemon" if pid is not None else "cron" if _by_cron(recent) else "stopped",
            pid=pid,
            running_since=_started(pid),
            interval=_interval(archive, recent, pid),
            samples=_count(archive),
            segments=len(archive.segments(SAMPLE)),
            size=sum(archive.source.sizes().values()),
            budget=budget.limit(root),
            free=free_bytes(root),
            journal_lines=archive.ledger.lines,
            journal_head=archive.ledger.head,
            errors=[error for brief in recent for error in _errors(brief)],
            forward=read_status(forward_state, root) if forward_state is not None else None,
        )
        last = recent[-1] if recent else last_sample(root)
        changed = list(_changed(archive))
    if last is not None:
        answer.last_sample = last.time
        if pid is None and any(event.event_type == "daemon_stop" for event in last.event):
            answer.stopped = last.time
        answer.last_sample_age = (now - last.time).total_seconds()
    gaps = [gap for brief in recent for gap in brief.gap]
    answer.ticks_missed = sum(gap.lost or 0 for gap in gaps if gap.reason == "missed")
    answer.samples_lost = sum(gap.lost or 0 for gap in gaps) - answer.ticks_missed
    answer.cpu_share = cpu_share(recent)
    answer.problems = [*_problems(answer), *changed]
    answer.healthy = not answer.problems
    return answer


def _check_there(root: Path) -> None:
    try:
        os.stat(root / ARCHIVE_FILE)
    except FileNotFoundError:
        said = "nothing was recorded there; start vmsonar daemon, or name another archive with --archive"
    except NotADirectoryError:
        said = "not the folder of an archive; vmsonar inspect and vmsonar verify take bundles"
    except PermissionError:
        said = "no permission to read it: ask as root, as its owner, or in its group"
    else:
        return
    raise VmsonarError(f"{root}: {said}")


def _changed(archive: Archive) -> Iterator[str]:
    """Damage that shows without reading every file."""
    for finding in archive.source.misfits(archive.ledger):
        yield f"{finding.path} {finding.detail}"
    if archive.ledger.broken_at is not None:
        yield f"journal line {archive.ledger.broken_at} {archive.ledger.broken_how}: see vmsonar verify"


def _problems(answer: Status) -> Iterator[str]:
    if answer.mode == "stopped":
        why = "it stopped as asked" if answer.stopped else "it ended without being asked"
        yield f"no recorder is running, {why}: start it with systemctl start vmsonar, or vmsonar daemon"
    if answer.last_sample_age is None:
        yield "there is no sample yet"
    elif answer.interval is not None and answer.mode != "stopped":
        limit = _PATIENCE_TICKS * answer.interval + _PATIENCE.total_seconds()
        if answer.last_sample_age > limit:
            yield f"the last sample is {answer.last_sample_age:.0f} s old, with one due every {answer.interval:g} s"
    if answer.forward is not None and answer.forward.trouble is not None:
        yield f"forwarding: {answer.forward.trouble}"
    if answer.samples_lost:
        yield f"{answer.samples_lost} samples of the last hour could not be written"


def cpu_share(recent: list[Brief]) -> float | None:
    """The CPU time of the present run over the last hour, as a share of one core."""
    run = [brief for brief in recent if brief.run == recent[-1].run and brief.cost]
    if len(run) < 2 or run[-1].boottime <= run[0].boottime:
        return None
    return (_cpu(run[-1]) - _cpu(run[0])) / (run[-1].boottime - run[0].boottime)


def _cpu(brief: Brief) -> int:
    cost = brief.cost[0]
    return (cost.cpu_time or 0) + (cost.child_cpu_time or 0)


def _recent(archive: Archive, since: datetime) -> Iterator[Brief]:
    decode = msgspec.json.Decoder(Brief).decode
    for segment in archive.segments(SAMPLE):
        if segment.may_hold(since, None):
            briefs = (decode(line) for line in archive.lines(segment))
            yield from (brief for brief in briefs if brief.time >= since)


def _by_cron(recent: list[Brief]) -> bool:
    """Whether the last samples are from cron: each a run of its own, without a daemon's start or stop."""
    last = recent[-2:]
    events = {event.event_type for brief in last for event in brief.event}
    return len({brief.run for brief in last}) == 2 and not events & _OF_A_DAEMON


def _interval(archive: Archive, recent: list[Brief], pid: int | None) -> float | None:
    """The interval that the daemon recorded, or that cron kept."""
    if pid is None and _by_cron(recent):
        return (recent[-1].time - recent[-2].time).total_seconds()
    last = deque(archive.sysinfos(), maxlen=1)
    return last[0].interval / 1000 if last and last[0].interval is not None else None


def _count(archive: Archive) -> int:
    """Samples by the journal; live segments are counted."""
    total = 0
    for segment in archive.segments(SAMPLE):
        known = segment.entry.records if segment.entry is not None else None
        total += known if known is not None else sum(1 for _ in archive.lines(segment))
    return total


def _errors(brief: Brief) -> Iterator[Error]:
    """Errors that began at a sample; their repetition in a new segment does not count again."""
    for gap in brief.gap:
        began = gap.since is None or gap.lost
        if began and gap.reason not in _BLIND_SPOTS:
            yield Error(time=brief.time, collector=gap.collector, reason=gap.reason, detail=gap.detail)


def _started(pid: int | None) -> datetime | None:
    import psutil

    try:
        return datetime.fromtimestamp(psutil.Process(pid).create_time(), UTC) if pid else None
    except psutil.Error:
        return None
