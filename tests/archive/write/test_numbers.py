"""No number is given twice, whatever fails when a writer starts."""

import errno
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.format.journal import Journal
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import SysInfo
from vmsonar_archive.write import repair
from vmsonar_archive.write.losses import AppendFailed

from tests.making.archives import BOOT, START, check, open_writer, read_seqs, record, segments


def describe(writer) -> int:
    return writer.append_sysinfo(SysInfo(time=START, seq=0, run="", boot=BOOT, boottime=10**15, cpus=2))


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, int]:
    """What a kill leaves: unsealed segments of both kinds, which share their numbers; and the last one given."""
    writer = open_writer(tmp_path / "live")
    describe(writer)
    record(writer, 50)
    for _ in range(3):
        describe(writer)
    shutil.copytree(tmp_path / "live", tmp_path / "a")
    last = writer.last_seq
    writer.close()
    return tmp_path / "a", last


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_disk_that_is_full_when_repairing(killed, monkeypatch):
    root, last = killed
    monkeypatch.setattr(repair, "rewrite", full)
    monkeypatch.setattr(Journal, "append", full)
    writer = open_writer(root)
    assert writer.last_seq == last, "what can be read tells the number"
    monkeypatch.undo()
    record(writer, 2, start=START + timedelta(hours=1))
    writer.close()
    open_writer(root).close()
    seqs = read_seqs(root)
    assert len(seqs) == len(set(seqs)) == 52
    assert check(root).ok


def test_segments_that_cannot_be_read(killed, monkeypatch):
    root, last = killed
    size = sum(path.stat().st_size for kind in ("sample", "sysinfo") for path in segments(root, kind))
    monkeypatch.setattr(repair, "examine", broken)
    writer = open_writer(root)
    assert last <= writer.last_seq <= last + size, "each record that may be there took at least a byte"
    writer.close()


def test_a_damaged_segment_beside_a_whole_one_of_the_other_kind(killed, monkeypatch):
    """The damaged one is tiny, but the numbers it may have used begin after those of the other."""
    root, last = killed
    (path,) = segments(root, "sysinfo")
    path.write_bytes(b"\xff" * 40)
    writer = open_writer(root)
    assert writer.last_seq >= last
    writer.close()


def test_a_tree_that_cannot_be_listed_is_not_written_to(killed, monkeypatch):
    root, _ = killed
    monkeypatch.setattr(repair.files, "list_tree", broken)
    with pytest.raises(OSError, match="Input/output"):
        open_writer(root)
    monkeypatch.undo()
    open_writer(root).close()
    assert check(root).ok


def test_a_record_that_may_have_been_seen_keeps_its_number(tmp_path, monkeypatch):
    """The disk said no, but a reader may have seen the record: its number is not given to another one."""
    writer = open_writer(tmp_path)
    record(writer, 3)
    plain = repair.files.write_all

    def written_but_refused(descriptor: int, data: bytes) -> None:
        plain(descriptor, data)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(repair.files, "write_all", written_but_refused)
    with pytest.raises(AppendFailed):
        record(writer, 1, start=START + timedelta(seconds=60))
    monkeypatch.undo()
    record(writer, 1, start=START + timedelta(seconds=70))
    writer.close()
    with open_archive(tmp_path) as archive:
        assert [sample.seq for sample in archive.samples()][-1] == 5
