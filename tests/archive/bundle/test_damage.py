"""Every changed byte shows, wherever it is; what lies before a cut is saved."""

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.format.lines import decode_stamp
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.read.source import BundleSource, NotABundle, open_source
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.verify.recover import recover

from tests.making.bundles import make_archive


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As few bytes as a bundle can have with samples and a sysinfo in it."""
    folder = tmp_path_factory.mktemp("small")
    make_archive(folder / "archive", samples=4)
    return Path(bundle_to_file(folder / "archive", folder).output)


def _unnoticed(bundle: Path, begin: int, end: int, flip: int, depth: Depth) -> list[int]:
    """Positions of changed bytes that verify does not mind."""
    content = bytearray(bundle.read_bytes())
    changed = bundle.with_name(f"flip-{os.getpid()}.tar")
    found = []
    for position in range(begin, end):
        content[position] ^= flip
        changed.write_bytes(content)
        if verify_path(changed, depth).ok:
            found.append(position)
        content[position] ^= flip
    changed.unlink()
    return found


def _flip_all(bundle: Path, flip: int) -> list[int]:
    size = bundle.stat().st_size
    cuts = [*range(0, size, 1000), size]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_unnoticed, bundle, begin, end, flip, Depth.FULL)
            for begin, end in itertools.pairwise(cuts)
        ]
        return [position for job in jobs for position in job.result()]


def test_every_flipped_byte_shows(small: Path) -> None:
    assert verify_path(small).ok
    assert _flip_all(small, 0x01) == []


@pytest.mark.chaos
@pytest.mark.parametrize("flip", [0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF])
def test_every_flipped_bit_shows(small: Path, flip: int) -> None:
    assert _flip_all(small, flip) == []


def test_quick_sees_changed_structure(small: Path) -> None:
    with_header = _unnoticed(small, 0, 600, 0x01, Depth.QUICK)
    assert with_header == []


def _cuts(path: Path) -> Iterator[int]:
    yield from range(0, path.stat().st_size, 512)


def _whole_before(bundle: Path, cut: int) -> set[int]:
    """Numbers of the records that lie before a cut, from a reading of the uncut bundle."""
    found: set[int] = set()
    source = BundleSource(bundle)
    with open_archive(bundle) as archive:
        for kind in ("sample", "sysinfo"):
            for segment in archive.segments(kind):
                member = source.walked.members[f"data/{segment.path}"]
                if member.offset + member.size <= cut:
                    found |= {decode_stamp(line).seq for line in archive.lines(segment)}
    source.close()
    return found


def test_cut_at_every_block(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    for number, cut in enumerate(_cuts(bundle)):
        damaged = tmp_path / "cut.tar"
        damaged.write_bytes(content[:cut])
        report = verify_path(damaged)
        assert not report.ok, cut
        assert all(finding.detail and "\n" not in finding.detail for finding in report.findings)
        try:
            source = open_source(damaged)
        except NotABundle:
            assert _whole_before(bundle, cut) == set()
            continue
        saved = tmp_path / str(number)
        recover(source, saved)
        source.close()
        with open_archive(saved) as archive:
            kept = {record.seq for record in [*archive.samples(), *archive.sysinfos()]}
        assert kept >= _whole_before(bundle, cut), cut
        assert verify_path(saved).ok


def test_records_in_a_cut_segment_are_saved(bundle: Path, tmp_path: Path) -> None:
    source = BundleSource(bundle)
    name, member = next(item for item in source.walked.members.items() if "sample-14" in item[0])
    source.close()
    damaged = tmp_path / "cut.tar"
    damaged.write_bytes(bundle.read_bytes()[: member.offset + member.size - 5])
    cut = open_source(damaged)
    saved = recover(cut, tmp_path / "saved")
    cut.close()
    # All records of the cut segment are whole: only the end of its frame is missing.
    assert saved.records == 12 + 28, name


def test_one_bad_header_costs_one_file(bundle: Path, tmp_path: Path) -> None:
    source = BundleSource(bundle)
    member = next(found for name, found in source.walked.members.items() if "sample-13" in name)
    source.close()
    content = bytearray(bundle.read_bytes())
    content[member.offset - 512 + 3] ^= 0xFF
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(content)
    cut = open_source(damaged)
    saved = recover(cut, tmp_path / "saved")
    cut.close()
    assert saved.records == 28 + 1
