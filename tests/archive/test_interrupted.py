"""A crash between the journal's line about a merge and the merge itself hides nothing from anybody."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.layout import is_temporary
from vmsonar_archive.recover import recover
from vmsonar_archive.source import FolderSource

from tests.archive.making import START, check, codes, open_writer, read_seqs, record, segments


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
