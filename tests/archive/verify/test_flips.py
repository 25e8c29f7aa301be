"""One changed bit in any file of an archive or a bundle is found, or lies where the format page says it is not."""

import io
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.bundle.increment import Acknowledged, read_acknowledged
from vmsonar_archive.bundle.make import BundleOptions, bundle_into_folder, bundle_to_file
from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.parquet.derive import derive_day, journal_tables
from vmsonar_archive.read.findings import Finding, Severity
from vmsonar_archive.records.fields import Sensitivity
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.verify.path import verify_path

from tests.making.archives import START, make_archive, open_writer, record, segments

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "format.md"
LIVE_RECORDS = 75
NEXT_HOUR = START + timedelta(hours=1)


@dataclass
class World:
    """Files of every kind, each with the archive or bundle that it is verified by."""

    files: dict[str, tuple[Path, Path]] = field(default_factory=dict)
    known: dict[Path, set[Finding]] = field(default_factory=dict)
    #: Where in the live segment the last record begins.
    last_record: int = 0

    def add(self, kind: str, path: Path, whole: Path) -> None:
        self.files[kind] = path, whole
        self.known.setdefault(whole, look(whole))


def look(whole: Path) -> set[Finding]:
    """What verification says, apart from mere notes."""
    return {finding for finding in verify_path(whole).findings if finding.severity is not Severity.NOTE}


def is_found(world: World, whole: Path) -> bool:
    try:
        _read_uploads(whole)
        return look(whole) != world.known[whole]
    except VmsonarError:
        return True


def _read_uploads(whole: Path) -> None:
    """What only the next upload reads."""
    if whole.is_dir():
        folder = os.open(whole, os.O_RDONLY)
        try:
            read_acknowledged(folder, os.getuid())
        finally:
            os.close(folder)


def lines_of(content: bytes) -> list[bytes]:
    return [line for found in read_frames(io.BytesIO(content)) for line in found.lines]


def changes_no_record(_world: World, before: bytes, after: bytes, _place: int) -> bool:
    return lines_of(before) == lines_of(after)


def is_in_the_last_record(world: World, _before: bytes, _after: bytes, place: int) -> bool:
    return place >= world.last_record


def changes_nothing_read(_world: World, before: bytes, after: bytes, _place: int) -> bool:
    return msgspec.json.decode(before, type=Acknowledged) == msgspec.json.decode(after, type=Acknowledged)


def anywhere(_world: World, _before: bytes, _after: bytes, _place: int) -> bool:
    return True


#: All that may go unnoticed, in the words of the format page: the kind of file, and where in it.
UNPROTECTED: dict[str, tuple[str, Callable[[World, bytes, bytes, int], bool]]] = {
    "the last record of a segment that is being written": ("live segment", is_in_the_last_record),
    "bits of a segment that is being written which change no record": ("live segment", changes_no_record),
    "`writer.lock`": ("writer.lock", anywhere),
    "bits of theirs which change nothing that is read": ("uploads.json", changes_nothing_read),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("flips")
    made = World()
    archive = make_archive(folder / "sealed", count=130)
    derive_day(archive, START.date())
    assert journal_tables(archive, START + timedelta(days=1))
    tables = bundle_to_file(archive, folder / "whole.tar")
    assert tables.ok
    writer = open_writer(archive)
    record(writer, LIVE_RECORDS - 1, start=NEXT_HOUR)
    record(writer, 1, start=NEXT_HOUR + timedelta(minutes=30))
    (folder / "increments").mkdir()
    first = bundle_into_folder(archive, folder / "increments", BundleOptions(increment=True))
    record(writer, 1, start=NEXT_HOUR + timedelta(minutes=40))
    second = bundle_into_folder(archive, folder / "increments", BundleOptions(increment=True))
    redacted = BundleOptions(redact=frozenset({Sensitivity.HOST}), redact_key=b"k" * 32)
    assert bundle_to_file(archive, folder / "redacted.tar", options=redacted).ok
    assert bundle_to_file(
        archive, folder / "cut.tar", options=BundleOptions(since=START + timedelta(minutes=5))
    ).ok
    # What a power cut would leave now, as the recorder still runs.
    live = folder / "live"
    shutil.copytree(archive, live)
    assert writer.close()
    made.last_record = _last_record(live)
    for kind in ("archive.json", "namespace", "journal.jsonl", "writer.lock", "uploads.json"):
        made.add(kind, live / kind, live)
    sealed, unsealed = segments(live)
    made.add("sealed segment", sealed, live)
    made.add("sysinfo segment", segments(live, "sysinfo")[0], live)
    made.add("live segment", unsealed, live)
    made.add("table", next(live.glob("2026/*/*/process.parquet")), live)
    for name in ("whole.tar", "redacted.tar", "cut.tar"):
        made.add(name, folder / name, folder / name)
    for bundled in (first, second):
        made.add(f"increment {Path(bundled.output).name[-20:]}", Path(bundled.output), Path(bundled.output))
    assert not any(made.known.values()), made.known
    return made


def _last_record(live: Path) -> int:
    """Where the last record of the live segment begins: the longest beginning that lacks it ends there."""
    content = segments(live)[-1].read_bytes()
    whole, size = len(lines_of(content)), len(content)
    while len(lines_of(content[:size])) == whole:
        size -= 1
    while len(lines_of(content[: size - 1])) == whole - 1 and _is_open(content[:size]):
        size -= 1
    return size


def _is_open(content: bytes) -> bool:
    """Whether it ends in the middle of a record."""
    return any(found.damage is not None for found in read_frames(io.BytesIO(content)))


def storm(world: World, flips: int, seed: int) -> Counter[str]:
    """Flips so many bits, as many in each kind of file; fails on the first that is neither found nor named."""
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    kinds = sorted(world.files)
    for number in range(flips):
        kind = kinds[number % len(kinds)]
        path, whole = world.files[kind]
        before = path.read_bytes()
        if not before:
            continue
        place, bit = rng.randrange(len(before)), rng.randrange(8)
        after = bytearray(before)
        after[place] ^= 1 << bit
        path.write_bytes(after)
        try:
            found = is_found(world, whole)
        finally:
            path.write_bytes(before)
        named = [
            name
            for name, (where, holds) in UNPROTECTED.items()
            if where == kind and not found and holds(world, before, bytes(after), place)
        ]
        assert found or named, f"{kind}: bit {bit} of byte {place} of {len(before)} changed unnoticed"
        tally["found" if found else named[0]] += 1
    return tally


def test_a_flip_is_found_or_named(world: World) -> None:
    tally = storm(world, 300, seed=1)
    assert tally["found"] > 200, tally


@pytest.mark.chaos
def test_five_thousand_flips(world: World) -> None:
    tally = storm(world, 5_000, seed=2)
    print(dict(tally))
    assert tally["found"] > 4_000, tally


@pytest.mark.parametrize("kind", ["archive.json", "namespace", "journal.jsonl"])
def test_every_bit_of_the_small_files_is_guarded(world: World, kind: str) -> None:
    path, whole = world.files[kind]
    before = path.read_bytes()
    begin = before[:-1].rfind(b"\n") + 1
    unnoticed = []
    for place in range(begin, len(before)):
        after = bytearray(before)
        after[place] ^= 1 << place % 8
        path.write_bytes(after)
        if not is_found(world, whole):
            unnoticed.append(place)
    path.write_bytes(before)
    assert unnoticed == []


def test_the_format_page_names_what_is_not_protected() -> None:
    page = " ".join(PAGE.read_text().split())
    assert [name for name in UNPROTECTED if name not in page] == []
