"""Decides which files answer for which records, so that none is counted twice and none is read in vain."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

from vmsonar_archive.errors import FormatError, VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.layout import RECORD_KINDS, is_parquet
from vmsonar_archive.parquet.footer import Footer
from vmsonar_archive.parquet.schema import SAMPLES
from vmsonar_archive.parquet.spans import SpanSet, size
from vmsonar_archive.parquet.stamps import Span
from vmsonar_archive.reader import Archive, Segment, open_archive
from vmsonar_archive.records import Stamp

from vmsonar_inspect.cache import Cache
from vmsonar_inspect.copies import copier
from vmsonar_inspect.export.target import Target, target_at
from vmsonar_inspect.lakes import lake_units
from vmsonar_inspect.origins import Origin
from vmsonar_inspect.parcels import JsonUnit, Stored, StoredUnit, Unit

# Compressed bytes of a day that takes seconds to derive, and the hour at which it is divided.
_LARGE = 4 * 1024 * 1024
_NOON = "12"


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is asked for; None is without limit."""

    since: datetime | None = None
    until: datetime | None = None

    def touches(self, day: date) -> bool:
        begin = datetime.combine(day, time(), UTC)
        return (self.until is None or begin < self.until) and (
            self.since is None or begin + timedelta(days=1) > self.since
        )

    def cuts(self, day: date) -> bool:
        """Whether only a part of that day is meant."""
        begin = datetime.combine(day, time(), UTC)
        end = begin + timedelta(days=1)
        return bool((self.since and begin < self.since < end) or (self.until and begin < self.until < end))

    def holds(self, stamp: Stamp) -> bool:
        return (self.since is None or stamp.time >= self.since) and (
            self.until is None or stamp.time < self.until
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """One unit that is to be read, except for the records that others hold."""

    unit: Unit
    without: tuple[Span, ...] = ()


@dataclass
class Plan:
    """What is read, in the end; the units of segments decide for themselves what to leave out."""

    pieces: list[Piece] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Planner:
    """Looks at origins one by one, then settles what overlaps."""

    def __init__(
        self,
        scratch: Path,
        cache: Cache | None,
        window: Window,
        bad: Mapping[tuple[str, str, str], str] = MappingProxyType({}),
        thorough: bool = False,
        whole_days: bool = True,
    ) -> None:
        """What is known to be bad is passed over and told; what is to be read whole is checked thoroughly."""
        self._bad = bad
        self._thorough = thorough
        self._scratch = scratch
        self._whole_days = whole_days
        self._cache = cache
        self._window = window
        self._stored: list[StoredUnit] = []
        self._segments: dict[tuple[str, str], list[tuple[Origin, Segment]]] = {}
        self._ticks: dict[str, float] = {}
        #: Hashes of segments that Parquet files say they were made from, per archive.
        self._taken: dict[str, set[str]] = {}
        self.findings: list[Finding] = []
        #: Why some could not be opened at all.
        self.errors: list[VmsonarError | OSError] = []
        #: Where each archive was found first, and what its machine is called, where that is known.
        self.places: dict[str, str] = {}
        self.hosts: dict[str, str | None] = {}

    def look(self, origin: Origin) -> None:
        """Takes in what an origin holds; what cannot be opened is a finding."""
        try:
            if origin.is_lake:
                self.look_at_lake(target_at(origin.place))
                return
            with open_archive(origin.path) as archive:
                self._look_inside(origin, archive)
        except (VmsonarError, OSError) as error:
            self.findings.append(Finding.of(Code.CORRUPT, origin.place, str(error)))
            self.errors.append(error)

    def look_at_lake(self, lake: Target) -> list[StoredUnit]:
        """Takes in what a lake holds; returns its units."""
        units = list(lake_units(lake, self._window.touches, self._folder))
        held = [unit for unit in units if self._readable(unit)]
        self._stored += held
        self.places = {unit.archive: lake.place for unit in held} | self.places
        return held

    def _look_inside(self, origin: Origin, archive: Archive) -> None:
        name = archive.identity.archive
        if (trouble := archive.source.trouble()) is not None:
            self.findings.append(Finding.of(Code.CORRUPT, origin.place, trouble))
        self.places.setdefault(name, origin.place)
        self.hosts.setdefault(name, archive.identity.hostname_short)
        if name not in self._ticks:
            first = next(archive.sysinfos(), None)
            self._ticks[name] = float(first.ticks_per_second or 100) if first else 100.0
        covered = SpanSet()
        for unit in self._parquet(origin, archive):
            self._stored.append(unit)
            covered.add(unit.spans)
        for kind in RECORD_KINDS:
            for segment in archive.segments(kind):
                wanted = segment.may_hold(self._window.since, self._window.until)
                if wanted and self._window.touches(segment.day) and not _is_covered(segment, covered):
                    self._segments.setdefault((name, str(segment.day)), []).append((origin, segment))

    def _parquet(self, origin: Origin, archive: Archive) -> Iterator[StoredUnit]:
        """The derived tables of an archive, a unit per day; a day without the list of its samples is passed over."""
        days: dict[str, dict[str, Stored]] = {}
        for path in archive.source.sizes():
            if is_parquet(path) and path not in archive.ledger.gone:
                folder, _, name = path.rpartition("/")
                table = name.removesuffix(".parquet")
                here = Stored(table, origin.path / path)
                there = Stored(table, copy=copier(origin.path, path))
                days.setdefault(folder.replace("/", "-"), {})[table] = here if origin.path.is_dir() else there
        for day, stored in days.items():
            if SAMPLES in stored and self._window.touches(date.fromisoformat(day)):
                name = archive.identity.archive
                unit = StoredUnit(name, day, stored, partial(self._folder, name, day, [origin.fingerprint()]))
                unit.place = origin.place
                if self._readable(unit):
                    self._taken.setdefault(name, set()).update(_hashes(unit.footer))
                    yield unit

    def _readable(self, unit: StoredUnit) -> bool:
        """Damaged tables are passed over: the records may still be in their segments."""
        try:
            if unit.key in self._bad:
                raise FormatError(self._bad[unit.key])
            unit.check(self._thorough)
            return True
        except VmsonarError as error:
            self.findings.append(Finding.of(Code.CORRUPT, f"{unit.place} {unit.day}", str(error)))
            return False

    def _folder(self, archive: str, day: str, parts: list[str]) -> Path:
        if self._cache is not None:
            return self._cache.folder(archive, day, parts)
        return Cache(self._scratch).folder(archive, day, parts)

    def plan(self, first: Collection[int] = ()) -> Plan:
        """Settles which unit answers for which records; those in `first`, by their ids, before all others."""
        plan = Plan(findings=self.findings)
        covered: dict[str, SpanSet] = {}
        for unit in sorted(self._stored, key=lambda unit: (id(unit) not in first, -size(unit.spans))):
            known = covered.setdefault(unit.archive, SpanSet())
            common = known.common(unit.spans)
            if size(common) == size(unit.spans) and common:
                continue
            if common or self._window.cuts(date.fromisoformat(unit.day)):
                self._restrict(unit, SpanSet(common))
            plan.pieces.append(Piece(unit, tuple(common)))
            known.add(unit.spans)
        for (archive, day), parts in sorted(self._segments.items()):
            taken = self._taken.get(archive, set())
            left = [part for part in parts if part[1].sha256 not in taken]
            for part in [left] if self._whole_days else _parts(left):
                plan.pieces.append(
                    Piece(self._json_unit(archive, day, part, covered.get(archive, SpanSet())))
                )
        return plan

    def _restrict(self, unit: StoredUnit, without: SpanSet) -> None:
        window = self._window
        unit.accepts = lambda stamp: stamp not in without and window.holds(stamp)
        unit.tag = hashlib.sha256(repr((list(without), window)).encode()).hexdigest()[:12]

    def _json_unit(
        self, archive: str, day: str, parts: Sequence[tuple[Origin, Segment]], covered: SpanSet
    ) -> JsonUnit:
        prints = [origin.fingerprint(segment.path) for origin, segment in parts]
        prints += [f"{span.run}:{span.boot}:{span.first}:{span.last}" for span in covered]
        scratch = Cache(self._scratch / "json").folder(archive, day, prints)
        sealed = all(segment.sealed for _, segment in parts)
        kept = self._cache.folder(archive, day, prints) if self._cache and sealed else None
        unit = JsonUnit(
            archive,
            day,
            list(parts),
            kept,
            scratch,
            self._ticks[archive],
            covered.misses if covered else None,
        )
        if self._window.cuts(date.fromisoformat(day)):
            unit.window = self._window.holds
        return unit


def _parts(day: list[tuple[Origin, Segment]]) -> list[list[tuple[Origin, Segment]]]:
    """What can be derived apart: what is sealed is kept, and two processes share a large day."""
    if len({origin for origin, _ in day}) > 1:
        # A record may be in several: only together are they told apart.
        return [day]
    is_large = sum(segment.size for _, segment in day) > _LARGE
    parts: dict[tuple[bool, bool], list[tuple[Origin, Segment]]] = {}
    for origin, segment in day:
        is_late = is_large and segment.name.hour[-2:] >= _NOON
        parts.setdefault((segment.sealed, is_late), []).append((origin, segment))
    return list(parts.values())


def _hashes(footer: Footer) -> Collection[str]:
    return {source.sha256 for source in footer.sources if source.sha256}


def _is_covered(segment: Segment, covered: SpanSet) -> bool:
    entry = segment.entry
    if entry is None or entry.first_seq is None or entry.last_seq is None:
        return False
    return covered.holds_numbers(entry.first_seq, entry.last_seq)
