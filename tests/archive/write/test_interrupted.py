"""A crash between the journal's line about a merge and the merge itself hides nothing from anybody."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.format.layout import is_temporary
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.verify.recover import recover
from vmsonar_inspect.tables.database import open_tables

from tests.making.archives import START, check, codes, flip, open_writer, read_seqs, record, segments


@pytest.fixture
def interrupted(tmp_path) -> Path:
    """Five small segments of one hour, journalled as merged, with the new file not yet in its place."""
    root, crashed = tmp_path / "a", tmp_path / "crashed"
    for number in range(5):
        writer = open_writer(root)
        record(writer, 2, start=START + timedelta(minutes=number * 5))
        writer.close()

    def fault(point: str) -> None:
        if point == "rewrite.before_rename":
            shutil.copytree(root, crashed)

    writer = open_writer(root, fault=fault)
    writer.tidy()
    writer.close()
    assert len(segments(crashed)) == 5
    return crashed


def temporary(root: Path) -> Path:
    (found,) = (path for path in root.rglob(".*") if is_temporary(path.name))
    return found


def saved(root: Path) -> tuple[list[int], list[str]]:
    source = FolderSource(root)
    result = recover(source, root.parent / "saved")
    source.close()
    assert check(root.parent / "saved").ok
    return read_seqs(root.parent / "saved"), [finding.code.value for finding in result.findings]


def test_the_reader_finds_all(interrupted):
    assert read_seqs(interrupted) == list(range(1, 11))


def test_recover_saves_all(interrupted):
    assert saved(interrupted) == (list(range(1, 11)), [])


def test_verify_says_what_is_pending(interrupted):
    report = check(interrupted)
    assert report.ok
    assert report.samples == 10
    assert "pending" in codes(report)


def test_what_was_merged_counts_when_the_merge_is_lost(interrupted):
    temporary(interrupted).unlink()
    assert read_seqs(interrupted) == list(range(1, 11))
    assert saved(interrupted)[0] == list(range(1, 11))


def test_what_was_merged_counts_when_the_merge_is_damaged(interrupted):
    path = temporary(interrupted)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert read_seqs(interrupted) == list(range(1, 11))


def test_leftovers_of_a_finished_merge_are_not_read_again(interrupted):
    path = temporary(interrupted)
    path.rename(segments(interrupted)[0])
    assert read_seqs(interrupted) == list(range(1, 11))
    source = FolderSource(interrupted)
    assert len(source.segments(source.journal()[0])) == 1
    source.close()


def counted(root: Path) -> tuple[int, int]:
    """How many records recovering says it saved, and how many lie in the files."""
    source = FolderSource(root)
    result = recover(source, root.parent / "saved")
    source.close()
    report = check(root.parent / "saved")
    assert report.ok
    return result.records, report.samples


@pytest.fixture
def repeated(tmp_path) -> Path:
    """A merge of two frames that has taken its place, with what it took in still there."""
    root, crashed = tmp_path / "a", tmp_path / "crashed"
    for number in range(5):
        writer = open_writer(root)
        record(writer, 20, start=START + timedelta(minutes=number * 5))
        writer.close()

    def fault(point: str) -> None:
        if point == "rewrite.before_unlink":
            shutil.copytree(root, crashed)

    writer = open_writer(root, fault=fault)
    writer.tidy()
    writer.close()
    assert len(segments(crashed)) == 5
    return crashed


@pytest.mark.parametrize("lost", ["nothing", "merge", "journal", "both"])
def test_recover_saves_each_record_once(repeated, lost):
    if lost in ("merge", "both"):
        merged = segments(repeated)[0]
        flip(merged, merged.stat().st_size - 100)
    if lost in ("journal", "both"):
        (repeated / "journal.jsonl").unlink()
    assert read_seqs(repeated) == list(range(1, 101))
    assert counted(repeated) == (100, 100)
    assert read_seqs(repeated.parent / "saved") == list(range(1, 101))


def test_a_bundle_takes_the_merge_that_is_not_yet_in_its_place(interrupted, tmp_path):
    """Nobody may be left to put it there: the machine goes down right after."""
    bundled = bundle_to_file(interrupted, tmp_path / "a.tar")
    assert bundled.findings == []
    assert verify_path(tmp_path / "a.tar").ok
    assert read_seqs(tmp_path / "a.tar") == list(range(1, 11))


def test_a_bundle_takes_what_a_damaged_merge_had_taken_in(repeated, tmp_path):
    merged = segments(repeated)[0]
    flip(merged, merged.stat().st_size - 100)
    bundled = bundle_to_file(repeated, tmp_path / "a.tar")
    assert [finding.path for finding in bundled.findings] == [str(merged.relative_to(repeated))]
    assert read_seqs(tmp_path / "a.tar") == list(range(1, 101))


def test_tables_hold_each_record_once(repeated):
    merged = segments(repeated)[0]
    flip(merged, merged.stat().st_size - 100)
    with open_tables([repeated]) as tables:
        assert tables.sql("SELECT count(*), count(DISTINCT seq) FROM samples").fetchall() == [(100, 100)]
