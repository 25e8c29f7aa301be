"""A disk that is full, read-only, gone or slow costs samples, never the writer."""

import errno
import os
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.system import files
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.losses import AppendFailed

from tests.making.archives import BOOT, START, check, codes, open_writer, read_seqs, record, rows
from tests.parts import requires

NO_LIMIT = Budget(max_bytes=2**30, min_free=0)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def append_until_failure(writer, limit: int = 5000) -> AppendFailed:
    for number in range(limit):
        try:
            writer.append(START + timedelta(seconds=number), BOOT, number, rows(number, 100))
        except AppendFailed as error:
            return error
    raise AssertionError("the disk never failed")


def maintain_until_quiet(writer) -> None:
    for _ in range(30):
        writer.maintain()
        time.sleep(0.01)


@requires("tmpfs_mount")
def test_a_full_disk_is_survived_and_told(small_disk):
    hog = small_disk / "hog"
    root = small_disk / "archive"
    writer = open_writer(root, budget=NO_LIMIT)
    record(writer, 5)
    free = os.statvfs(small_disk)
    hog.write_bytes(b"\xff" * (free.f_bavail * free.f_frsize - 40_000))
    error = append_until_failure(writer)
    assert error.reason == "disk_full"
    assert "free some space" in str(error)
    written = writer.last_seq
    for number in range(3):
        with pytest.raises(AppendFailed):
            writer.append(START + timedelta(hours=1, seconds=number), BOOT, number, rows(number, 5000))
    hog.unlink()
    maintain_until_quiet(writer)
    record(writer, 5, start=START + timedelta(hours=2))
    assert writer.samples_lost == 4
    assert writer.close()
    report = check(root)
    assert report.ok, report.findings
    assert not codes(report) & {"torn_tail", "unsealed"}
    seqs = read_seqs(root)
    assert seqs[:written] == list(range(1, written + 1))
    assert len(seqs) == len(set(seqs)) == written + 5, "each record has a number of its own"
    with open_archive(root) as archive:
        gaps = [gap for sample in archive.samples() for gap in sample.gap]
    assert [(gap.collector, gap.reason, gap.lost) for gap in gaps] == [("archive", "disk_full", 4)]


@requires("tmpfs_mount")
def test_a_read_only_disk_is_survived(small_disk):
    root = small_disk / "archive"
    writer = open_writer(root, budget=NO_LIMIT)
    record(writer, 3)
    # Open files keep a file system from being remounted; a mount over it is read-only all the same.
    subprocess.run(["mount", "--bind", str(root), str(root)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(root)], check=True)
    for _ in range(2):
        with pytest.raises(AppendFailed) as failure:
            record(writer, 1, start=START + timedelta(hours=1))
        assert failure.value.reason == "read_only"
    subprocess.run(["umount", str(root)], check=True)
    record(writer, 2, start=START + timedelta(hours=1))
    assert writer.close()
    assert check(root).ok
    assert read_seqs(root) == [1, 2, 3, 4, 5]
    with open_archive(root) as archive:
        gaps = [gap for sample in archive.samples() for gap in sample.gap]
    assert [(gap.reason, gap.lost) for gap in gaps] == [("read_only", 2)]


def test_a_vanished_archive_is_noticed_and_not_begun_anew(tmp_path):
    root = tmp_path / "archive"
    writer = open_writer(root)
    record(writer, 3)
    away = root.rename(tmp_path / "away")
    subprocess.run(["rm", "-r", str(away / "2026")], check=True)
    for _ in range(2):
        with pytest.raises(AppendFailed) as failure:
            record(writer, 1)
        assert failure.value.reason == "vanished"
    assert not root.exists()
    away.rename(root)
    record(writer, 2, start=START + timedelta(hours=1))
    assert writer.close()
    assert read_seqs(root) == [4, 5]


def test_a_stalled_disk_delays_nobody(tmp_path):
    """An fdatasync that takes forever: appending goes on, and what is not durable is not called so."""
    released = threading.Event()

    def stalled(descriptor: int) -> None:
        released.wait(20)
        os.fdatasync(descriptor)

    writer = open_writer(tmp_path / "a", fdatasync=stalled)
    begin = time.monotonic()
    record(writer, 50)
    assert time.monotonic() - begin < 15
    assert writer.durable_seq == 0
    assert read_seqs(tmp_path / "a") == list(range(1, 51))
    released.set()
    assert writer.close()
    assert writer.durable_seq == 50
    assert check(tmp_path / "a").ok


#: What may wait for a disk, as opposed to the page cache.
WAITING = ("fsync", "fdatasync", "rename", "replace", "unlink", "rmdir", "ftruncate", "truncate")


def test_the_thread_that_samples_never_waits_for_the_disk(tmp_path, monkeypatch):
    """New hours, new days, failed writes, finished hours that are written anew: none of it may flush here."""
    root = tmp_path / "a"
    clock = [START]
    writer = open_writer(root, now=lambda: clock[0])
    ours, waited = threading.get_ident(), []

    def guarded(name: str):
        plain = getattr(os, name)

        def call(*arguments: object, **settings: object) -> object:
            if threading.get_ident() == ours:
                waited.append(name)
            return plain(*arguments, **settings)

        return call

    for name in WAITING:
        monkeypatch.setattr(os, name, guarded(name))
    written = files.write_all
    for number in range(60):
        clock[0] += timedelta(minutes=47)
        if number % 7 == 3:
            monkeypatch.setattr(files, "write_all", refuse)
            with pytest.raises(AppendFailed):
                record(writer, 1, start=clock[0])
            monkeypatch.setattr(files, "write_all", written)
        record(writer, 2, start=clock[0], seconds=1)
        writer.maintain()
    assert waited == []
    assert writer.close()
    assert len(read_seqs(root)) == 120
    assert check(root).ok


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_new_hour_on_a_stalled_disk(tmp_path, monkeypatch):
    """The folder's fsync hangs: sampling goes on, and nothing is called durable before its folder is."""
    released, plain = threading.Event(), files.fsync_folder
    writer = open_writer(tmp_path / "a")
    record(writer, 1)
    wait_until_durable(writer, 1)
    monkeypatch.setattr(files, "fsync_folder", lambda folder: released.wait(20) and plain(folder))
    begin = time.monotonic()
    for hour in range(1, 4):
        record(writer, 5, start=START + timedelta(hours=12 * hour))
    assert time.monotonic() - begin < 15
    assert writer.durable_seq == 1
    assert len(read_seqs(tmp_path / "a")) == 16
    released.set()
    wait_until_durable(writer, 16)
    assert writer.close()
    assert check(tmp_path / "a").ok


def test_a_folder_that_was_not_kept_is_synced_again(tmp_path, monkeypatch):
    plain, failures, synced = files.fsync_folder, [OSError(errno.EIO, "Input/output error")], []

    def fsync_folder(folder: Path) -> None:
        if failures:
            raise failures.pop()
        synced.append(folder)
        plain(folder)

    writer = open_writer(tmp_path / "a")
    monkeypatch.setattr(files, "fsync_folder", fsync_folder)
    record(writer, 1)
    deadline = time.monotonic() + 20
    while failures and time.monotonic() < deadline:
        time.sleep(0.001)
    record(writer, 1, start=START + timedelta(seconds=10))
    wait_until_durable(writer, 2)
    assert {tmp_path / "a", tmp_path / "a" / "2026", tmp_path / "a" / "2026" / "11" / "16"} <= set(synced)
    assert writer.close()


def wait_until_durable(writer, seq: int) -> None:
    deadline = time.monotonic() + 20
    while writer.durable_seq < seq:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_closing_does_not_wait_for_a_stalled_disk(tmp_path):
    entered, released = threading.Event(), threading.Event()

    def fdatasync(_descriptor: int) -> None:
        entered.set()
        released.wait(20)

    writer = open_writer(tmp_path / "a", fdatasync=fdatasync)
    record(writer, 5)
    assert entered.wait(20)
    begin = time.monotonic()
    assert not writer.close()
    assert time.monotonic() - begin < 15
    released.set()


def test_little_free_space_is_left_alone(tmp_path):
    everything = Budget(max_bytes=2**30, min_free=2**62)
    writer = open_writer(tmp_path / "a", budget=everything)
    with pytest.raises(AppendFailed) as failure:
        record(writer, 1)
    assert failure.value.reason == "disk_full"
    writer.close()
    assert list(Path(tmp_path / "a").glob("2*")) == []
