"""A lake for fleets: kind=/date=/archive=/<records>.parquet, to which exports add what it does not hold yet.

The file of the samples is written last: until it is there, our readers do not see the others of that export, and the
next export of the same records writes the same names again.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from vmsonar_archive.findings import Finding
from vmsonar_archive.parquet.footer import read_footer
from vmsonar_archive.parquet.schema import SAMPLES, SERIES_DAY, TABLES

from vmsonar_inspect.export.target import Target
from vmsonar_inspect.origins import Origin
from vmsonar_inspect.parcels import JsonUnit, StoredUnit, Unit
from vmsonar_inspect.plan import Piece, Planner, Window


@dataclass
class Exported:
    """What was added to a lake."""

    files: int = 0
    bytes: int = 0
    units: int = 0
    findings: list[Finding] = field(default_factory=list)


def export_lake(origins: Sequence[Origin], target: Target) -> Exported:
    """Adds to a lake whatever of these archives, bundles and lakes it does not hold."""
    done = Exported()
    with tempfile.TemporaryDirectory(prefix="vmsonar-") as scratch:
        planner = Planner(Path(scratch), None, Window(), thorough=True)
        held = {id(unit) for unit in planner.look_at_lake(target)}
        for origin in origins:
            planner.look(origin)
        plan = planner.plan(first=held)
        for piece in plan.pieces:
            if id(piece.unit) not in held:
                _add(piece, target, Path(scratch) / "add", done)
        done.findings = [*plan.findings, *(one for piece in plan.pieces for one in piece.unit.findings)]
    return done


def _add(piece: Piece, target: Target, scratch: Path, done: Exported) -> None:
    unit = piece.unit
    scratch.mkdir(exist_ok=True)
    files = dict(_files(unit, scratch))
    spans = read_footer(files[SAMPLES]).spans
    if not spans:
        return
    name = hashlib.sha256(msgspec.json.encode(spans)).hexdigest()[:16]
    for table in sorted(files, key=lambda table: table == SAMPLES):
        path = files[table]
        target.put(path, f"kind={table}/date={unit.day}/archive={unit.archive}/{name}.parquet")
        done.files += 1
        done.bytes += path.stat().st_size
    done.units += 1
    for path in scratch.iterdir():
        path.unlink()


def _files(unit: Unit, scratch: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(unit, JsonUnit):
        yield from unit.derive_all(scratch).items()
    elif isinstance(unit, StoredUnit) and unit.accepts is None:
        yield from unit.files([*TABLES, SERIES_DAY]).items()
    elif isinstance(unit, StoredUnit):
        yield from unit.rewritten(scratch).items()
