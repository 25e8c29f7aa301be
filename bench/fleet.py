"""Collecting: a thousand VMs ship four increments of ninety samples each, and one machine goes on for a month.

Rows per CPU second, memory, disk; what an increment costs in a fresh archive and in one that is a month old. The
machines are this one: it is recorded once, and shipped under a thousand identities.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
from vmsonar_archive.bundle.make import bundle_into_folder
from vmsonar_archive.bundle.worker import BundleOptions
from vmsonar_archive.format.journal import DROP, SEAL, Journal, JournalEntry, SegmentFacts
from vmsonar_archive.format.layout import SAMPLE, SegmentName
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import KINDS

from bench import Figure
from bench.fleets import START, shifted, side_by_side, write_segment
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import open_fleet

VMS = 1000
_SAMPLES = 90
_INTERVAL = 0.2
_PIECES = 8
_ROUNDS = 4
_QUARTER = timedelta(minutes=15)
#: Increments of a month.
_MONTH = 30 * 96
_MEASURED = 12


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows, archive_bytes = _record(place)
        (place / "inbox").mkdir()
        figures = []
        for number in range(_ROUNDS):
            side_by_side(partial(_ship, place, number), range(_PIECES))
            cpu, wall, memory = _collect(place)
            figures += [
                Figure(
                    f"collect: {VMS} VMs, increment {number + 1} of each",
                    rows * VMS / cpu,
                    "rows per CPU s",
                    300_000,
                    at_least=True,
                ),
                Figure(f"collect: CPU of an increment {number + 1}", 1000 * cpu / VMS, "ms"),
                Figure("collect: wall of one increment, most of it fsync", 1000 * wall / VMS, "ms"),
                # Of the largest child so far, which is the collector: the makers of bundles are smaller.
                Figure("collect: peak memory", memory, "MiB", 1024),
            ]
        files = [path for path in (place / "fleet").rglob("*") if path.is_file()]
        used = sum(path.stat().st_blocks * 512 for path in files)
        fresh, old = _goes_on(place / "fresh", place, 0), _goes_on(place / "old", place, _MONTH)
        return [
            *figures,
            Figure(
                "collect: disk beside the machines' own bytes",
                used / (archive_bytes * VMS * _ROUNDS),
                "times",
            ),
            Figure("collect: files of one machine", len(files) / VMS, "files"),
            Figure("collect: rows of one increment", rows, "rows"),
            Figure("collect: CPU of an increment, fresh archive", 1000 * fresh, "ms"),
            Figure("collect: the same, archive a month old", 1000 * old, "ms"),
            Figure(
                "collect: rows, archive a month old", rows / old, "rows per CPU s", 300_000, at_least=True
            ),
        ]


def _collect(place: Path) -> tuple[float, float, float]:
    """CPU and wall seconds of a collector, and its memory in MiB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "vmsonar", "collect", str(place / "inbox"), "--fleet", str(place / "fleet"),
         "--once", "--json"],
        capture_output=True, check=True, env={**os.environ},
    )  # fmt: skip
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(done.stdout)
    assert answer["accepted"] == VMS, answer
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, after.ru_maxrss / 1024


def _record(place: Path) -> tuple[int, int]:
    """This machine for a while; returns the rows and the bytes."""
    root, seconds = place / "recorded", f"{_SAMPLES * _INTERVAL:.0f}s"
    command = [sys.executable, "-m", "vmsonar", "daemon", "--archive", str(root), "--interval",
               f"{_INTERVAL * 1000:.0f}ms", "--for", seconds]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    with open_archive(root) as archive:
        rows = sum(len(getattr(sample, kind)) for sample in archive.samples() for kind in KINDS)
    return rows, sum(path.stat().st_size for path in root.rglob("*.zst"))


def _ship(place: Path, number: int, piece: int) -> None:
    source = place / "recorded"
    for vm in range(piece, VMS, _PIECES):
        root = place / f"vm{vm}"
        if not root.exists():
            _begin(root, source)
        _go_on(root, source, number)
        bundle_into_folder(root, place / "inbox", BundleOptions(increment=True))


def _begin(root: Path, source: Path) -> None:
    root.mkdir()
    identity = json.loads((source / "archive.json").read_text())
    machine = {"archive": str(uuid4()), "machine_id": uuid4().hex, "hostname_short": root.name}
    (root / "archive.json").write_text(json.dumps(identity | machine))


def _go_on(root: Path, source: Path, number: int) -> None:
    """Adds what was recorded, later by so many quarters of an hour."""
    with open_archive(source) as archive:
        recorded = [list(archive.lines(segment)) for segment in archive.segments(SAMPLE)]
    entries = []
    for lines in recorded:
        made = write_segment(root, SAMPLE, [shifted(one, number * _QUARTER, number * 1000) for one in lines])
        entries.append(JournalEntry.of(SEAL, made, made.last or START))
    journal = Journal(root)
    journal.append(*entries)
    journal.close()


def _goes_on(root: Path, place: Path, before: int) -> float:
    """CPU seconds of each of some increments to an archive that has had others before."""
    source, inbox = place / "recorded", place / f"{root.name}-inbox"
    inbox.mkdir()
    _begin(root, source)
    intake = Intake(open_fleet(place / f"{root.name}-fleet", create=True))
    if before:
        _age(root, before)
        _go_on(root, source, before)
        bundle_into_folder(root, inbox, BundleOptions(increment=True))
        _take(intake, inbox)
        _age(next(intake.fleet.origins()), before)
    for number in range(before + 1, before + 1 + _MEASURED):
        _go_on(root, source, number)
        bundle_into_folder(root, inbox, BundleOptions(increment=True))
    return _take(intake, inbox) / _MEASURED


def _age(root: Path, count: int) -> None:
    """Gives a journal lines of so many segments that came and went."""
    made = SegmentFacts(path="", bytes=87_654, sha256="ab" * 32, records=_SAMPLES)
    journal, lines = Journal(root), []
    for number in range(count):
        time, seq = START + number * _QUARTER, 1 + number * _SAMPLES
        times = {"first": time, "last": time + _QUARTER, "first_seq": seq, "last_seq": seq + _SAMPLES - 1}
        path = SegmentName.of(SAMPLE, time, seq).path
        sealed = JournalEntry.of(SEAL, msgspec.structs.replace(made, path=path, **times), time)
        lines += [sealed, msgspec.structs.replace(sealed, op=DROP, reason="max_days")]
    journal.append(*lines)
    journal.close()


def _take(intake: Intake, inbox: Path) -> float:
    began = time.process_time()
    for path in sorted(inbox.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        assert intake.take(path, "bench").accepted
    return time.process_time() - began
