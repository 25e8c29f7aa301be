"""Real file systems: full, without inodes, read-only, laid over each other, and in the thousands."""

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.collectors.filesystem.conftest import mount, umount
from tests.collectors.filesystem.watching import Watch
from tests.parts import requires

pytestmark = requires("tmpfs_mount")
MIB = 1 << 20


@pytest.fixture
def watch():
    with Watch() as watch:
        yield watch


@pytest.fixture
def memory(own_mounts) -> Path:
    """A tmpfs of 100 MiB."""
    place = own_mounts / "memory"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=100m,nr_inodes=1000", "tmpfs", place)
    return place


@pytest.fixture
def disk(own_mounts) -> Path:
    """An ext4 of 16 MiB with a few inodes."""
    image, place = own_mounts / "image", own_mounts / "disk"
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-N", "64", image], check=True)
    place.mkdir()
    mount("-o", "loop", image, place)
    yield place
    subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)


def fill(path: Path, size: int | None = None) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while size is None or file.tell() < size:
                file.write(b"\xff" * 65536)
        except OSError:
            return


def test_a_row_says_what_statvfs_says(watch, memory):
    row = watch.rows()[str(memory)]
    said = os.statvfs(memory)
    assert (row.fs_type, row.device, row.read_only, row.space_source) == ("tmpfs", "tmpfs", False, "statvfs")
    assert row.bytes_total == 100 * MIB
    assert (row.bytes_free, row.bytes_available) == (said.f_bfree * 4096, said.f_bavail * 4096)
    assert (row.inodes_total, row.inodes_free, row.inodes_available) == (1000, said.f_ffree, said.f_favail)
    assert os.makedev(row.device_major, row.device_minor) == os.stat(memory).st_dev


def test_a_row_comes_with_a_change_of_a_per_cent_and_once_a_minute(watch, memory):
    watch.rows()
    assert str(memory) not in watch.rows()
    fill(memory / "a", MIB // 2)
    assert str(memory) not in watch.rows()
    fill(memory / "b", MIB)
    assert watch.rows()[str(memory)].bytes_available <= 98.6 * MIB
    assert str(memory) not in watch.rows()
    (memory / "b").unlink()
    assert watch.rows()[str(memory)].bytes_available >= 99 * MIB
    assert str(memory) not in watch.rows(30)
    assert str(memory) in watch.rows(31)
    assert str(memory) in watch.rows(fresh=True)


def test_the_last_per_cent_is_told_at_every_sample(watch, memory):
    watch.rows()
    fill(memory / "hog")
    for _ in range(3):
        assert watch.rows()[str(memory)].bytes_available == 0
    (memory / "hog").unlink()
    assert watch.rows()[str(memory)].bytes_available > 99 * MIB
    assert str(memory) not in watch.rows()


@requires("loop_mount")
def test_a_disk_without_inodes(watch, disk):
    assert watch.rows()[str(disk)].inodes_available > 20
    subprocess.run(["sh", "-c", f"for n in $(seq 100); do : > {disk}/$n; done"], stderr=subprocess.DEVNULL)
    for _ in range(2):
        row = watch.rows()[str(disk)]
        assert (row.inodes_available, row.fs_type) == (0, "ext4")
        assert row.bytes_available > 5 * MIB


@requires("loop_mount")
def test_a_full_disk_is_full_for_everybody_before_it_is_for_root(watch, disk):
    assert watch.rows()[str(disk)].bytes_free > watch.rows(fresh=True)[str(disk)].bytes_available > 0
    fill(disk / "hog")
    row = watch.rows()[str(disk)]
    assert (row.bytes_available, row.bytes_total > 10 * MIB) == (0, True)


@requires("loop_mount")
def test_a_remount_is_told_at_once_and_one_elsewhere_within_seconds(watch, disk):
    """A superblock that turns read-only, as after an error, does so in every namespace; only the table says it."""
    assert watch.rows()[str(disk)].read_only is False
    mount("-o", "remount,ro", disk)
    assert watch.rows()[str(disk)].read_only is True
    mount("-o", "remount,rw", disk)
    assert watch.rows()[str(disk)].read_only is False
    subprocess.run(["unshare", "--mount", "mount", "-o", "remount,ro", disk], check=True)
    watch.rows()
    told = watch.rows(10).get(str(disk)) or watch.rows(0)[str(disk)]
    assert told.read_only is True


@requires("loop_mount")
def test_a_disk_that_met_an_error_is_read_only(watch, disk):
    """Newer kernels leave it "rw" in the table, with a word for it further on."""
    mount("-o", "remount,errors=remount-ro", disk)
    assert watch.rows()[str(disk)].read_only is False
    device = os.stat(disk).st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("1")
    with pytest.raises(OSError, match="Read-only"):
        (disk / "file").touch()
    watch.rows()
    told = watch.rows(10).get(str(disk)) or watch.rows(0)[str(disk)]
    assert told.read_only is True


@requires("loop_mount")
def test_our_own_view_being_read_only_says_nothing(watch, disk):
    """As under ProtectSystem=strict."""
    mount("-o", "remount,bind,ro", disk)
    with pytest.raises(OSError, match="Read-only"):
        (disk / "file").touch()
    assert watch.rows()[str(disk)].read_only is False


def test_a_full_image_that_nobody_writes_is_no_news(watch, memory):
    fill(memory / "hog")
    mount("-o", "remount,ro", memory)
    assert watch.rows()[str(memory)].bytes_available == 0
    assert str(memory) not in watch.rows()


def test_binds_count_once_and_an_overlay_by_its_own_number(watch, memory, own_mounts):
    for name in ("lower", "upper", "work"):
        (memory / name).mkdir()
    merged, bound = own_mounts / "merged", own_mounts / "b"
    merged.mkdir()
    bound.mkdir()
    mount("--bind", memory / "lower", bound)
    layers = f"lowerdir={memory}/lower,upperdir={memory}/upper,workdir={memory}/work"
    mount("-t", "overlay", "-o", layers, "overlay", merged)
    rows = watch.rows()
    assert str(bound) not in rows
    assert rows[str(merged)].fs_type == "overlay"
    assert rows[str(merged)].bytes_total == rows[str(memory)].bytes_total == 100 * MIB
    fill(merged / "file", 5 * MIB)
    assert {str(merged), str(memory)} <= set(watch.rows())


@requires("loop_mount")
def test_what_is_mounted_over_hides_and_comes_back(watch, disk):
    before = watch.rows()[str(disk)]
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", disk)
    (told,) = [gap for _ in (0,) if watch.rows() for gap in watch.gaps]
    assert (told.reason, told.detail) == (
        "hidden", f"ext4 {before.device_major}:{before.device_minor} is covered in the recorder's own view"
    )  # fmt: skip
    hidden = [one for one in watch.collector.capabilities() if not one.available]
    assert "ProtectHome" in hidden[0].remedy
    watch.rows()
    assert watch.gaps == []
    umount(disk)
    assert watch.rows()[str(disk)].bytes_total == before.bytes_total


@requires("loop_mount")
def test_whoever_unmounts_is_not_held_up(watch, disk):
    watch.rows()
    watch.rows()
    umount(disk)
    assert str(disk) not in watch.rows(fresh=True)


def test_a_mount_point_of_any_bytes(watch, own_mounts):
    place = os.fsencode(own_mounts) + b"/a b\n\\\t\xff\xc3\xa9"
    os.mkdir(place)
    subprocess.run([b"mount", b"-t", b"tmpfs", b"-o", b"size=8m", b"with a blank", place], check=True)
    (row,) = [row for point, row in watch.rows().items() if "a b\n" in point]
    assert row.mount_point.endswith("/a b\n\\\t\N{REPLACEMENT CHARACTER}é")
    assert (row.device, row.bytes_total) == ("with a blank", 8 * MIB)


def test_a_folder_above_a_mount_that_gets_another_name_is_found_again(watch, own_mounts):
    """No event tells of it; the path leads nowhere until the table is read again."""
    place = own_mounts / "old" / "disk"
    place.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", place)
    assert watch.rows()[str(place)].bytes_total == 8 * MIB
    (own_mounts / "old").rename(own_mounts / "new")
    assert watch.rows()[str(place)].bytes_total is None
    assert [gap.reason for gap in watch.gaps] == ["missing"]
    assert watch.rows(10)[str(own_mounts / "new" / "disk")].bytes_total == 8 * MIB


def test_thousands_of_mounts_are_bounded(watch, own_mounts):
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(3000):
        place = own_mounts / f"{number}"
        place.mkdir()
        assert libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=1m") == 0
    begin = time.process_time()
    rows = watch.rows()
    took = time.process_time() - begin
    assert len(rows) == 256
    assert [(gap.reason, gap.lost) for gap in watch.gaps] == [("too_many", None)]
    begin = time.process_time()
    for _ in range(20):
        watch.rows()
    steady = (time.process_time() - begin) / 20
    print(f"3,000 mounts: {took * 1e3:.1f} ms when they change, {steady * 1e6:.0f} µs at a steady sample")
    assert took < 1
    assert steady < 0.01
