"""A disk that is full, read-only, gone or slow costs samples, never the writer."""

import os
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.budget import Budget
from vmsonar_archive.failures import AppendFailed
from vmsonar_archive.reader import open_archive

from tests.archive.making import BOOT, START, check, codes, open_writer, read_seqs, record, rows
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
    assert read_seqs(root) == list(range(1, written + 6))
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
    assert time.monotonic() - begin < 5
    assert writer.durable_seq == 0
    assert read_seqs(tmp_path / "a") == list(range(1, 51))
    released.set()
    assert writer.close()
    assert writer.durable_seq == 50
    assert check(tmp_path / "a").ok


def test_closing_does_not_wait_for_a_stalled_disk(tmp_path):
    released = threading.Event()
    writer = open_writer(tmp_path / "a", fdatasync=lambda _descriptor: released.wait(20) and None)
    record(writer, 5)
    time.sleep(0.1)
    begin = time.monotonic()
    assert not writer.close()
    assert time.monotonic() - begin < 5
    released.set()


def test_little_free_space_is_left_alone(tmp_path):
    everything = Budget(max_bytes=2**30, min_free=2**62)
    writer = open_writer(tmp_path / "a", budget=everything)
    with pytest.raises(AppendFailed) as failure:
        record(writer, 1)
    assert failure.value.reason == "disk_full"
    writer.close()
    assert list(Path(tmp_path / "a").glob("2*")) == []
