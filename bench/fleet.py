"""Collecting: a thousand VMs ship an increment of ninety samples each; rows per CPU second, memory, disk.

The machines are this one: it is recorded once, and shipped under a thousand identities.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
from vmsonar_archive.bundle.make import bundle_into_folder
from vmsonar_archive.bundle.worker import BundleOptions
from vmsonar_archive.format.journal import Journal, JournalEntry
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import KINDS

from bench import Figure
from bench.fleets import side_by_side

VMS = 1000
_SAMPLES = 90
_INTERVAL = 0.2
_PIECES = 8


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows, archive_bytes = _record(place)
        (place / "inbox").mkdir()
        side_by_side(partial(_ship, place), range(_PIECES))
        shipped = sorted((place / "inbox").glob("*.tar"))
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "vmsonar", "collect", str(place / "inbox"), "--fleet", str(place / "fleet"),
             "--once", "--json"],
            capture_output=True, check=True, env={**os.environ},
        )  # fmt: skip
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = json.loads(done.stdout)
        assert answer["accepted"] == len(shipped) == VMS, answer
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        used = sum(path.stat().st_size for path in (place / "fleet").rglob("*") if path.is_file())
        return [
            Figure(
                f"collect: {VMS} VMs, {len(shipped)} increments",
                rows * VMS / cpu,
                "rows per CPU s",
                300_000,
                at_least=True,
            ),
            Figure("collect: CPU of one increment", 1000 * cpu / len(shipped), "ms"),
            Figure("collect: wall of one increment, most of it fsync", 1000 * wall / len(shipped), "ms"),
            # Of the largest child so far, which is the collector: the makers of bundles are smaller.
            Figure("collect: peak memory", after.ru_maxrss / 1024, "MiB", 1024),
            Figure("collect: disk beside the machines' own bytes", used / (archive_bytes * VMS), "times"),
            Figure("collect: rows of one machine", rows, "rows"),
        ]


def _record(place: Path) -> tuple[int, int]:
    """This machine for a while; returns the rows and the bytes."""
    root, seconds = place / "recorded", f"{_SAMPLES * _INTERVAL:.0f}s"
    command = [sys.executable, "-m", "vmsonar", "daemon", "--archive", str(root), "--interval",
               f"{_INTERVAL * 1000:.0f}ms", "--for", seconds]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    with open_archive(root) as archive:
        rows = sum(len(getattr(sample, kind)) for sample in archive.samples() for kind in KINDS)
    return rows, sum(path.stat().st_size for path in root.rglob("*.zst"))


def _ship(place: Path, piece: int) -> None:
    source = place / "recorded"
    identity = json.loads((source / "archive.json").read_text())
    for number in range(piece, VMS, _PIECES):
        root = place / f"vm{number}"
        root.mkdir()
        machine = {"archive": str(uuid4()), "machine_id": uuid4().hex, "hostname_short": f"vm{number}"}
        (root / "archive.json").write_text(json.dumps(identity | machine))
        _bring(source, root)
        bundle_into_folder(root, place / "inbox", BundleOptions(increment=True))
        shutil.rmtree(root)


def _bring(source: Path, root: Path) -> None:
    """The segments of a recorded archive, with journal lines of its own."""
    for path in source.glob("[0-9]*/*/*/*.zst"):
        target = root / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    journal = Journal(root)
    for line in (source / "journal.jsonl").read_bytes().splitlines():
        entry = msgspec.json.decode(line, type=JournalEntry)
        journal.append(msgspec.structs.replace(entry, identity=None, namespace=None))
    journal.close()
