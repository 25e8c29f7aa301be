"""Recovery tells a source that cannot be read from a target that cannot be written."""

import errno
import gc

import pytest
from vmsonar_archive.read.source import FolderSource
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.verify.recover import recover

from tests.making.archives import check, make_archive, read_seqs, segments


class Failing:
    """A disk that cannot read beyond a certain byte."""

    def __init__(self, stream, readable: int) -> None:
        self._stream = stream
        self._left = readable

    def read(self, size: int = -1) -> bytes:
        if self._left <= 0:
            raise OSError(errno.EIO, "Input/output error")
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._stream.close()


def test_a_full_target_ends_it(tmp_path, monkeypatch):
    root = make_archive(tmp_path / "a", 5)
    real = files.write_all

    def full(descriptor: int, data: bytes) -> None:
        if len(data) > 200:
            real(descriptor, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, data)

    source = FolderSource(root)
    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(VmsonarError, match="No space left") as raised:
        recover(source, tmp_path / "saved")
    source.close()
    assert raised.value.exit_code == Exit.CANNOT
    assert str(tmp_path / "saved") in str(raised.value)
    del raised
    gc.collect()
    assert segments(tmp_path / "saved") == []


def test_a_disk_that_fails_costs_what_cannot_be_read(tmp_path, monkeypatch):
    root = make_archive(tmp_path / "a", 50, processes=30)
    (path,) = segments(root)
    source = FolderSource(root)
    plain = source.open

    def failing(name: str):
        stream = plain(name)
        return Failing(stream, path.stat().st_size // 2) if name.endswith(path.name) else stream

    monkeypatch.setattr(source, "open", failing)
    result = recover(source, tmp_path / "saved")
    source.close()
    assert any("Input/output error" in finding.detail for finding in result.findings)
    seqs = read_seqs(tmp_path / "saved")
    assert 10 <= len(seqs) < 50
    assert result.records == len(seqs) + 1
    assert check(tmp_path / "saved").ok
