"""Where derived tables are kept: on any disk, and nowhere where there is none."""

import errno
import shutil
import tempfile
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_inspect.tables import cache
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import USAGE, make


@pytest.fixture
def archive(tmp_path):
    make(tmp_path / "archive")
    return tmp_path / "archive"


def ask(archive, **settings):
    with open_tables([archive], **settings) as tables:
        return tables.sql(USAGE).fetchall()


def test_the_cache_may_be_on_another_disk_than_temporary_files(archive, tmp_path):
    other = Path(tempfile.mkdtemp(dir="/dev/shm"))
    if other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("temporary files are in /dev/shm themselves")
    try:
        found = ask(archive, cache=other)
        assert found == ask(archive, cache=False)
        kept = sorted(path.name for path in other.glob("*/*"))
        assert any(name.startswith("samples-") and name.endswith(".parquet") for name in kept)
        assert not any("partial" in name for name in kept)
        assert ask(archive, cache=other) == found
    finally:
        shutil.rmtree(other)


def test_a_home_that_cannot_be_written_is_done_without(archive, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VMSONAR_CACHE", raising=False)
    assert cache.usual_cache() is None
    assert ask(archive) == ask(archive, cache=False)


def test_a_chosen_cache_must_do(archive, tmp_path, monkeypatch):
    (tmp_path / "chosen").write_text("not a folder")
    monkeypatch.setenv("VMSONAR_CACHE", str(tmp_path / "chosen"))
    with pytest.raises(VmsonarError, match=r"cannot keep tables in VMSONAR_CACHE=.*chosen: File exists"):
        ask(archive)


def test_what_cannot_be_kept_stays_where_it_is(tmp_path, monkeypatch):
    def full(source, _target):
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr(shutil, "move", full)
    (tmp_path / "table").write_text("rows")
    (tmp_path / "kept").mkdir()
    assert not cache.keep(tmp_path / "table", tmp_path / "kept")
    assert (tmp_path / "table").read_text() == "rows"
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_full_cache_is_done_without(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "move", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    assert ask(archive, cache=tmp_path / "kept") == ask(archive, cache=False)
