"""Inputs for the reading side that would take hours to record: months and fleets, made from what was recorded.

A month is one recorded day thirty times, each a day later on both clocks and with other numbers. A fleet is some
recorded hours under many identities. Rows, sizes and files are those of the real thing.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.format.frames import FrameWriter
from vmsonar_archive.format.journal import SEAL, Journal, JournalEntry, SegmentFacts
from vmsonar_archive.format.layout import SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.format.lines import decode_stamp, encode_row, finish
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.write.rewrite import examine

from tests.making.load import START, make_archive

DAYS = 30
#: More than a day has records.
_NUMBERS = 10_000
_TAIL = len(b',"crc":"01234567"}')
_PROCESSES = 30
_SAMPLES = 359


def side_by_side(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Does the same for every item, with a process per core."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, items))


def make_month(day: Path, root: Path) -> Path:
    """An archive of thirty days of segments, without tables."""
    root.mkdir()
    shutil.copy(day / "archive.json", root)
    journal = Journal(root, lambda _point: None)
    for made in side_by_side(partial(_shift_day, day, root), range(DAYS)):
        for sealed in made:
            journal.append(JournalEntry.of(SEAL, sealed, START))
    journal.close()
    return root


def _shift_day(source: Path, root: Path, days: int) -> list[SegmentFacts]:
    made = []
    with open_archive(source) as archive:
        for kind in (SAMPLE, SYSINFO):
            for segment in archive.segments(kind):
                later = timedelta(days=days)
                lines = [shifted(line, later, days * _NUMBERS) for line in archive.lines(segment)]
                made.append(write_segment(root, kind, lines))
    return made


def shifted(line: bytes, later: timedelta, numbers: int) -> bytes:
    """The same record at a later time, with a higher number."""
    stamp = decode_stamp(line)
    moved = msgspec.structs.replace(
        stamp,
        time=stamp.time + later,
        seq=stamp.seq + numbers,
        boottime=stamp.boottime + int(later.total_seconds()) * 10**9,
    )
    return finish(encode_row(moved)[:-1] + line[len(encode_row(stamp)) - 1 : -_TAIL])


def write_segment(root: Path, kind: str, lines: list[bytes]) -> SegmentFacts:
    """A segment of these records."""
    first = decode_stamp(lines[0][:-1])
    path = SegmentName.of(kind, first.time, first.seq).path
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    writer = FrameWriter(1, flush=False)
    with (root / path).open("x+b") as file:
        for line in lines:
            file.write(writer.add([line]))
        file.write(writer.end())
        file.seek(0)
        return examine(file, path)[0]


def add_tables(day: Path, month: Path, tables: Iterable[str]) -> None:
    """Gives every day of a month the tables that were derived from the day it was made of."""
    folder = next(day.glob("*/*/*/series_day.parquet")).parent
    side_by_side(partial(_later_tables, folder, month, tuple(tables)), range(DAYS))


def _later_tables(source: Path, month: Path, tables: Iterable[str], days: int) -> None:
    target = month / f"{START + timedelta(days=days):%Y/%m/%d}"
    for table in tables:
        _later(source / f"{table}.parquet", target / f"{table}.parquet", days)


def _later(source: Path, target: Path, days: int) -> None:
    table = pq.read_table(source)
    steps: dict[str, Any] = dict.fromkeys(
        ("boottime", "first_boottime", "last_boottime"), days * 86_400 * 10**9
    )
    steps |= dict.fromkeys(("time", "first_time", "last_time"), pa.scalar(timedelta(days=days)))
    steps["seq"] = days * _NUMBERS
    for name in steps.keys() & set(table.column_names):
        moved = pc.add(table[name], steps[name])
        table = table.set_column(table.column_names.index(name), name, moved)
    footer = json.loads((pq.read_metadata(source).metadata or {})[b"vmsonar.footer"])
    footer["spans"] = [
        [run, boot, a + days * _NUMBERS, b + days * _NUMBERS] for run, boot, a, b in footer["spans"]
    ]
    footer["day"] = f"{START + timedelta(days=days):%Y-%m-%d}"
    table = table.replace_schema_metadata({b"vmsonar.footer": json.dumps(footer).encode()})
    pq.write_table(table, target, compression="zstd")


def make_bundles(folder: Path, count: int, recorded: int = 20) -> Path:
    """So many bundles of an hour of a small machine each; a few machines are recorded, the rest are those again."""
    (folder / "recorded").mkdir(parents=True)
    (folder / "bundles").mkdir()
    side_by_side(partial(_bundles, folder, count // recorded), range(recorded))
    return folder / "bundles"


def _bundles(folder: Path, copies: int, seed: int) -> None:
    # Within one hour of the clock: one segment.
    start = datetime.fromisoformat("2026-11-01T00:00:00Z")
    root = make_archive(folder / "recorded" / str(seed), _SAMPLES, _PROCESSES, seed=seed + 1, start=start)
    identity = json.loads((root / "archive.json").read_text())
    for copy in range(copies):
        machine = {"archive": str(uuid4()), "machine_id": uuid4().hex, "hostname_short": f"vm{seed}-{copy}"}
        (root / "archive.json").write_text(json.dumps(identity | machine))
        bundle_to_file(root, folder / "bundles" / f"vm{seed}-{copy}.tar")
