"""Decides which file provides which records, so that none is counted twice and no file is read needlessly."""

import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from types import MappingProxyType

from vmsonar_archive.format.layout import RECORD_KINDS, is_parquet
from vmsonar_archive.parquet.schema import SAMPLES
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.reader import Archive, Segment, open_archive
from vmsonar_archive.read.source import BundleSource
from vmsonar_archive.records.sets import RecordSet, Span, size
from vmsonar_archive.system.errors import FormatError, VmsonarError
from vmsonar_archive.system.files import sha256_at

from vmsonar_inspect.tables.cache import Cache
from vmsonar_inspect.tables.duckdb import quoted
from vmsonar_inspect.tables.lakes import lake_units, listing_findings, read_listing
from vmsonar_inspect.tables.stores import LakeStore, lake_at
from vmsonar_inspect.tables.where import Origin, TimeFrame
from vmsonar_inspect.tables.work_units import (
    SUMMARIES,
    ListedFile,
    SegmentUnit,
    StoredTable,
    TableUnit,
    WorkUnit,
)

# Compressed bytes of a day that takes seconds to derive, and the hour at which it is divided.
_LARGE = 4 * 1024 * 1024
_NOON = "12"


class Planner:
    """Takes in origins one by one, then resolves overlaps."""

    def __init__(
        self,
        scratch: Path,
        cache: Cache | None,
        frame: TimeFrame,
        bad: Mapping[tuple[str, str, str], str] = MappingProxyType({}),
        thorough: bool = False,
        whole_days: bool = True,
    ) -> None:
        """Units in `bad` are skipped and reported; `thorough` checks every table, not only the record lists."""
        self._bad = bad
        self._thorough = thorough
        self._scratch = scratch
        self._whole_days = whole_days
        self._cache = cache
        self._folder = (cache or Cache(scratch)).folder
        self._frame = frame
        self._stored: list[TableUnit] = []
        self._segments: dict[tuple[str, str], list[tuple[Origin, Segment]]] = {}
        self._ticks: dict[str, float] = {}
        #: Hashes of segments that Parquet files say they were made from, per archive.
        self._taken: dict[str, set[str]] = {}
        self.findings: list[Finding] = []
        #: Errors of origins that could not be opened.
        self.errors: list[VmsonarError | OSError] = []
        #: Where each archive was found first, and what its machine is called, where that is known.
        self.places: dict[str, str] = {}
        self.hosts: dict[str, str | None] = {}

    def add(self, origin: Origin) -> None:
        """Takes in the units of an origin; one that cannot be opened is a finding."""
        try:
            if origin.is_lake:
                self.add_lake(lake_at(origin.place))
                return
            with open_archive(origin.path) as archive:
                self._add_archive(origin, archive)
        except (VmsonarError, OSError) as error:
            self.findings.append(Finding.of(Code.CORRUPT, origin.place, str(error)))
            self.errors.append(error)

    def add_lake(self, lake: LakeStore) -> list[TableUnit]:
        """Takes in the units of a lake and returns them."""
        listing = read_listing(lake)
        self.findings += listing_findings(listing)
        units = list(lake_units(listing, self._frame.touches, self._folder))
        held = [unit for unit in units if self._readable(unit)]
        self._stored += held
        self.places = {unit.archive: lake.place for unit in held} | self.places
        return held

    def _add_archive(self, origin: Origin, archive: Archive) -> None:
        name = archive.identity.archive
        if (trouble := archive.source.trouble()) is not None:
            self.findings.append(Finding.of(Code.CORRUPT, origin.place, trouble))
        self.places.setdefault(name, origin.place)
        self.hosts.setdefault(name, archive.identity.hostname_short)
        if name not in self._ticks:
            first = next(archive.sysinfos(), None)
            self._ticks[name] = float(first.ticks_per_second or 100) if first else 100.0
        covered = RecordSet()
        for unit in self._parquet(origin, archive):
            self._stored.append(unit)
            covered.update(unit.spans)
        for segment in (segment for kind in RECORD_KINDS for segment in archive.segments(kind)):
            wanted = segment.may_hold(self._frame.since, self._frame.until)
            if wanted and self._frame.touches(segment.day) and not _is_covered(segment, covered):
                self._segments.setdefault((name, str(segment.day)), []).append((origin, segment))

    def _parquet(self, origin: Origin, archive: Archive) -> Iterator[TableUnit]:
        """The derived tables of an archive, one unit per day; a day without its list of samples is skipped."""
        name = archive.identity.archive
        days: dict[str, dict[str, StoredTable]] = {}
        for path, size_of in archive.source.sizes().items():
            if not is_parquet(path) or path in archive.ledger.gone:
                continue
            place = f"{origin.place}/{path}"
            if size_of < 0:
                self.findings.append(Finding.of(Code.CORRUPT, place, "is not a regular file"))
                continue
            folder, _, file = path.rpartition("/")
            entry = archive.ledger.current.get(path)
            listed = [ListedFile(path=path, bytes=entry.bytes, sha256=entry.sha256)] if entry else []
            source = origin.path / path if origin.path.is_dir() else partial(_copy_out, origin.path, path)
            days.setdefault(folder.replace("/", "-"), {})[file.removesuffix(".parquet")] = StoredTable(
                source, place, listed
            )
        for day, stored in days.items():
            if SAMPLES in stored and self._frame.touches(date.fromisoformat(day)):
                folder_of_day = partial(self._folder, name, day, [origin.fingerprint()])
                unit = TableUnit(name, day, stored, folder_of_day, origin.place)
                if self._readable(unit):
                    hashes = {source.sha256 for source in unit.footer.sources if source.sha256}
                    self._taken.setdefault(name, set()).update(hashes)
                    yield unit

    def _readable(self, unit: TableUnit) -> bool:
        """Skips damaged tables: the records may still be in their segments."""
        try:
            if unit.key in self._bad:
                raise FormatError(self._bad[unit.key])
            unit.check(self._thorough)
            return True
        except VmsonarError as error:
            self.findings.append(Finding.of(Code.CORRUPT, f"{unit.place} {unit.day}", str(error)))
            return False

    def plan(self, first: Collection[WorkUnit] = ()) -> list[WorkUnit]:
        """The units to read, each without the records that another provides; those in `first` take precedence."""
        units: list[WorkUnit] = []
        covered: dict[str, RecordSet] = {}
        for unit in sorted(self._stored, key=lambda unit: (unit not in first, -size(unit.spans))):
            known = covered.setdefault(unit.archive, RecordSet())
            common = known.common(unit.spans)
            if size(common) == size(unit.spans) and common:
                continue
            if common or self._frame.splits(date.fromisoformat(unit.day)):
                self._restrict(unit, common)
            units.append(unit)
            known.update(unit.spans)
        for (archive, day), parts in sorted(self._segments.items()):
            taken = self._taken.get(archive, set())
            left = [part for part in parts if part[1].sha256 not in taken]
            known = covered.get(archive, RecordSet())
            divided = [left] if self._whole_days else _parts(left)
            units += [self._segment_unit(archive, day, part, known) for part in divided]
        return units

    def _restrict(self, unit: TableUnit, common: Sequence[Span]) -> None:
        frame, without = self._frame, RecordSet(common)
        unit.without = common
        unit.accepts = lambda stamp: stamp not in without and frame.holds(stamp)
        unit.tag = hashlib.sha256(repr((list(without), frame)).encode()).hexdigest()[:12]

    def _segment_unit(
        self, archive: str, day: str, parts: list[tuple[Origin, Segment]], covered: RecordSet
    ) -> SegmentUnit:
        prints = [origin.fingerprint(segment.path) for origin, segment in parts]
        prints += [f"{span.run}:{span.boot}:{span.first}:{span.last}" for span in covered]
        sealed = all(segment.sealed for _, segment in parts)
        return SegmentUnit(
            archive,
            day,
            parts,
            kept=self._cache.folder(archive, day, prints) if self._cache and sealed else None,
            scratch=Cache(self._scratch / "json").folder(archive, day, prints),
            ticks_per_second=self._ticks[archive],
            accepts=covered.misses if covered else None,
            window=self._frame.holds if self._frame.splits(date.fromisoformat(day)) else None,
        )


def _copy_out(bundle: Path, name: str, target: Path) -> None:
    """Copies one file out of a bundle."""
    with open_archive(bundle) as archive:
        source = archive.source
        listed = source.sums().get(name) if isinstance(source, BundleSource) else None
        with source.open(name) as content, target.open("wb") as sink:
            shutil.copyfileobj(content, sink, 1024 * 1024)
    if listed is not None and sha256_at(target)[1] != listed:
        target.unlink()
        raise FormatError(f"{name} in {bundle} is not what the manifest says: it was damaged")


def _parts(day: list[tuple[Origin, Segment]]) -> list[list[tuple[Origin, Segment]]]:
    """Splits a day into parts derived separately: sealed segments can be cached, a large day is halved."""
    if len({origin for origin, _ in day}) > 1 or any(segment.merged for _, segment in day):
        # A record may be in several segments: repeats are only found when these are derived together.
        return [day]
    is_large = sum(segment.size for _, segment in day) > _LARGE
    parts: dict[tuple[bool, bool], list[tuple[Origin, Segment]]] = {}
    for origin, segment in day:
        is_late = is_large and segment.name.hour[-2:] >= _NOON
        parts.setdefault((segment.sealed, is_late), []).append((origin, segment))
    return list(parts.values())


def _is_covered(segment: Segment, covered: RecordSet) -> bool:
    entry = segment.entry
    if entry is None or entry.first_seq is None or entry.last_seq is None:
        return False
    return covered.holds_numbers(entry.first_seq, entry.last_seq)


def row_filters(table: str, frame: TimeFrame, without: Sequence[Span]) -> Iterator[str]:
    """The SQL conditions for the time frame and for records that other files provide."""
    if table in SUMMARIES:
        yield f"source_table = {quoted(SUMMARIES[table])}"
        return
    # Info rows are written once per segment and hold for later samples too.
    timed = not table.endswith("info")
    for border, sign in ((frame.since, ">="), (frame.until, "<")):
        if timed and border is not None:
            yield f"unix_micros(time) {sign} {round(border.timestamp() * 1e6)}"
    for span in without:
        same = f"run = {quoted(span.run)} AND boot = {quoted(span.boot)}"
        yield f"NOT ({same} AND seq BETWEEN {span.first} AND {span.last})"
