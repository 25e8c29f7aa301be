"""A lake for fleets: kind=/date=/archive=/<records>.parquet, to which exports add what it does not hold yet.

Files become a part of the lake by a manifest that is written after them: until it is there our readers do not see
them, and the next export of the same records writes the same names again.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace
from vmsonar_archive.parquet.files import read_footer
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, TABLES
from vmsonar_archive.read.findings import Finding
from vmsonar_archive.records.sets import size
from vmsonar_archive.system.files import sha256_at

from vmsonar_inspect.tables.lakes import add_manifest, read_listing
from vmsonar_inspect.tables.plan import Planner
from vmsonar_inspect.tables.stores import LakeStore
from vmsonar_inspect.tables.where import Origin, TimeFrame
from vmsonar_inspect.tables.work_units import ListedFile, SegmentUnit, TableUnit, WorkUnit

_DAYS_AT_ONCE = 64
_ALWAYS = TimeFrame()


@dataclass
class LakeExport:
    """What was added to a lake."""

    files: int = 0
    bytes: int = 0
    units: int = 0
    findings: list[Finding] = field(default_factory=list)


def export_lake(origins: Sequence[Origin], target: LakeStore, frame: TimeFrame = _ALWAYS) -> LakeExport:
    """Adds the records of archives, bundles and other lakes that a lake does not hold yet."""
    done = LakeExport()
    with tempfile.TemporaryDirectory(prefix="vmsonar-") as scratch:
        planner = Planner(Path(scratch), None, frame, thorough=True)
        held = set(planner.add_lake(target))
        if not read_listing(target).exists:
            _list_existing(target, held)
        for origin in origins:
            planner.add(origin)
        units = planner.plan(first=held)
        entries: list[ListedFile] = []
        try:
            for number, unit in enumerate(unit for unit in units if unit not in held):
                entries += _add(unit, target, Path(scratch) / "add", done)
                # One manifest for many days, so that a large lake has few of them.
                if entries and number % _DAYS_AT_ONCE == _DAYS_AT_ONCE - 1:
                    add_manifest(target, entries)
                    entries = []
        finally:
            # Finished files need not be written again.
            if entries:
                add_manifest(target, entries)
        done.findings = [*planner.findings, *(finding for unit in units for finding in unit.findings)]
    return done


def _list_existing(target: LakeStore, held: Iterable[TableUnit]) -> None:
    """Adds a manifest to a lake that has none yet."""
    known = [one for unit in held for one in unit.as_listed()]
    add_manifest(target, (replace(one, path=one.path.removeprefix(f"{target.place}/")) for one in known))


def _add(unit: WorkUnit, target: LakeStore, scratch: Path, done: LakeExport) -> list[ListedFile]:
    scratch.mkdir(exist_ok=True)
    files = _files(unit, scratch)
    spans = read_footer(files[SAMPLES]).spans
    if not spans:
        return []
    entries = []
    name = hashlib.sha256(msgspec.json.encode(spans)).hexdigest()[:16]
    for table in sorted(files, key=lambda table: table == SAMPLES):
        path = files[table]
        count, digest = sha256_at(path)
        records = size(spans) if table == SAMPLES else None
        place = f"kind={table}/date={unit.day}/archive={unit.archive}/{name}.parquet"
        target.put(path, place)
        entries.append(ListedFile(path=place, bytes=count, sha256=digest, records=records))
        done.files += 1
        done.bytes += count
    done.units += 1
    for path in scratch.iterdir():
        path.unlink()
    return entries


def _files(unit: WorkUnit, scratch: Path) -> dict[str, Path]:
    if isinstance(unit, SegmentUnit):
        return unit.derive_all(scratch)
    assert isinstance(unit, TableUnit)
    return unit.files([*TABLES, SERIES_DAY]) if unit.accepts is None else unit.rewritten(scratch)
