"""The table of mounts, as the kernel writes it and as somebody hostile would have it."""

import os
import time

import pytest

from vmsonar.host.mounts import MountTree, parse_mounts

ROOT = b"1 0 254:0 / / rw shared:1 - ext4 /dev/vda rw\n"


def places(*lines: bytes, prefix: bytes = b"") -> dict[bytes, str]:
    """Each file system's path and way, below an ext4 root."""
    found = MountTree(parse_mounts(ROOT + b"\n".join(lines)), prefix).places()
    return {place.mount.point: place.way for place in found}


def line(number: int, parent: int, device: str, point: str, kind: str, options="rw", root="/", source="x"):
    return f"{number} {parent} {device} {root} {point} rw - {kind} {source} {options}".encode()


@pytest.mark.parametrize(
    ("kind", "way"),
    [("ext4", "statvfs"), ("tmpfs", "statvfs"), ("fuse", "helper"), ("fuse.sshfs", "helper"), ("zfs", "helper"),
     ("whatever", "helper"), ("nfs4", "none"), ("cifs", "none"), ("ceph", "none"), ("lustre", "none"), ("9p", "none"),
     ("fuse.glusterfs", "none"), ("beegfs", "none"), ("proc", None), ("cgroup2", None), ("squashfs", None),
     ("autofs", None)],
)  # fmt: skip
def test_who_asks_goes_by_the_type(kind, way):
    assert places(line(2, 1, "0:9", "/usr", kind)).get(b"/usr") == way


def test_any_byte_may_be_in_a_mount_point():
    (_, mount) = parse_mounts(ROOT + rb"2 1 0:9 / /a\040b\011c\012d\134e" + b"\xff rw - tmpfs x\\040y rw")
    assert (mount.point, mount.source) == (b"/a b\tc\nd\\e\xff", b"x y")


def test_an_empty_source_and_options_that_look_like_a_separator():
    (_, mount) = parse_mounts(ROOT + rb"2 1 0:9 / /a rw shared:3 master:1 - tmpfs  rw,x=-\040-")
    assert (mount.source, mount.kind, mount.read_only) == (b"", b"tmpfs", False)


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"x", b"1 2 3 - a b c", b"a b 0:1 / / rw - ext4 x rw", b" - " * 50, b"\0" * 99]
)
def test_what_is_no_mountinfo_has_no_mounts(text):
    assert list(parse_mounts(text)) == []


def test_read_only_is_what_the_superblock_says_and_not_the_mount():
    ours = b"2 1 0:9 / /a ro,nosuid - ext4 /dev/sda rw\n3 1 0:10 / /b rw - ext4 /dev/sdb ro,relatime"
    assert [mount.read_only for mount in parse_mounts(ours)] == [False, True]


def test_a_device_counts_once_at_its_shortest_whole_mount():
    part = line(2, 1, "8:1", "/a", "ext4", root="/sub")
    assert places(part, line(3, 1, "8:1", "/longer", "ext4"), line(4, 1, "8:1", "/usr", "ext4")) == {
        b"/": "statvfs",
        b"/usr": "statvfs",
    }


def test_what_lies_under_another_mount_is_hidden():
    disk, cover = line(2, 1, "8:1", "/home", "ext4"), line(3, 2, "0:9", "/home", "tmpfs")
    found = MountTree(parse_mounts(ROOT + disk + b"\n" + cover)).places()
    assert [(place.mount.device, place.way) for place in found] == [
        (b"254:0", "statvfs"), (b"8:1", "hidden"), (b"0:9", "statvfs")
    ]  # fmt: skip


def test_what_lies_below_a_covered_folder_is_hidden_too():
    disk, cover = line(2, 1, "8:1", "/a/b", "ext4"), line(3, 1, "0:9", "/a", "tmpfs")
    assert places(disk, cover)[b"/a/b"] == "hidden"


def test_a_covered_tmpfs_is_missed_by_nobody():
    assert places(line(2, 1, "0:8", "/usr", "tmpfs"), line(3, 2, "0:9", "/usr", "tmpfs")) == {
        b"/": "statvfs",
        b"/usr": "statvfs",
    }


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "unknown"])
def test_a_disk_that_is_reached_through_a_share_may_hang(kind):
    assert (
        places(line(2, 1, "0:8", "/usr", kind), line(3, 2, "8:1", "/usr/lib", "ext4"))[b"/usr/lib"]
        == "helper"
    )


@pytest.mark.parametrize(
    "option", ["lowerdir=/etc:/usr/low", "upperdir=/usr/up", "lowerdir+=/usr/x", r"lowerdir=/usr/a\040b"]
)
def test_an_overlay_over_a_share_may_hang(option):
    share = line(2, 1, "0:8", "/usr", "nfs4")
    assert places(share, line(3, 1, "0:9", "/var", "overlay", f"rw,{option},workdir=/w"))[b"/var"] == "helper"


def test_an_overlay_over_an_overlay_over_a_share_may_hang():
    lines = [line(2, 1, "0:8", "/usr", "fuse"), line(3, 1, "0:9", "/var", "overlay", "rw,lowerdir=/usr")]
    assert places(*lines, line(4, 1, "0:10", "/etc", "overlay", "rw,lowerdir=/var/x"))[b"/etc"] == "helper"


def test_an_overlay_of_disks_does_not():
    assert (
        places(line(3, 1, "0:9", "/var", "overlay", "rw,lowerdir=l/ABC:/etc,upperdir=/usr"))[b"/var"]
        == "statvfs"
    )


def test_what_an_automounter_unmounts_when_idle_is_left_alone():
    lines = [line(2, 1, "0:8", "/usr", "autofs"), line(3, 2, "8:1", "/usr", "vfat")]
    assert places(*lines) == {b"/": "statvfs", b"/usr": "none"}


def test_a_path_that_another_user_could_bend_is_not_walked(tmp_path):
    """Who owns a folder above a mount can put a link to a dead share in its place."""
    for name in ("mine", "theirs", "open", "sticky"):
        (tmp_path / name / "disk").mkdir(parents=True)
    os.chown(tmp_path / "theirs", 1000, 1000)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "sticky").chmod(0o1777)
    (tmp_path / "link").symlink_to("mine")
    names = ("mine", "theirs", "open", "sticky", "link")
    lines = [line(2 + at, 1, f"8:{at}", f"/{name}/disk", "ext4") for at, name in enumerate(names)]
    found = places(*lines, prefix=os.fsencode(tmp_path))
    ways = [found[f"/{name}/disk".encode()] for name in names]
    assert ways == ["statvfs", "helper", "helper", "statvfs", "helper"]


def test_a_mount_that_says_it_is_its_own_parent_does_not_hold_us():
    assert places(
        line(5, 5, "0:9", "/usr", "tmpfs"), line(6, 7, "0:9", "/", "tmpfs"), line(7, 6, "0:9", "/", "tmpfs")
    )


def test_thousands_of_mounts_take_no_time():
    folder = "/var/lib/docker/overlay2"
    lines = [
        line(
            10 + n, 1, f"0:{n}", f"{folder}/{n:064x}/merged", "overlay", f"rw,upperdir={folder}/{n:064x}/diff"
        )
        for n in range(5000)
    ]
    begin = time.process_time()
    assert len(places(*lines)) == 5001
    assert time.process_time() - begin < 5
