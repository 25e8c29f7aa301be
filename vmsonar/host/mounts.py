"""Which file systems are mounted, where each can be reached, and who may ask it (proc_pid_mountinfo(5))."""

import os
import re
import select
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

#: How a file system is asked: by us, by the helper because it may hang, or not at all.
STATVFS, HELPER, NONE = "statvfs", "helper", "none"
#: Over-mounted, in our view of the tree at least.
HIDDEN = "hidden"

# These answer from memory, whatever their device does.
_LOCAL = frozenset(
    b"bcachefs btrfs exfat ext2 ext3 ext4 f2fs hfs hfsplus jfs minix nilfs2 ntfs3 overlay reiserfs tmpfs ubifs udf "
    b"vfat xfs".split()
)
# A server that is gone would hold whoever asks; each has counters of its own.
_NETWORK = frozenset(
    b"9p acfs afs beegfs beegfs_nodev ceph cifs coda dvs fhgfs glusterfs gpfs lustre lustre_lite mfs mmfs ncpfs nfs "
    b"nfs4 orangefs panfs pvfs2 quobyte smb3 smbfs wekafs".split()
)
# What the kernel shows of itself has no room that could run out.
_PSEUDO = frozenset(
    b"autofs binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devpts devtmpfs efivarfs functionfs "
    b"fuse.gvfsd-fuse fuse.lxcfs fuse.portal fusectl hugetlbfs mqueue nfsd nsfs proc pstore ramfs resctrl rootfs "
    b"rpc_pipefs securityfs selinuxfs smackfs sysfs tracefs".split()
)
# Images are full from the day they were made.
_IMAGES = frozenset(b"cramfs erofs fuse.snapfuse fuse.squashfuse iso9660 romfs squashfs".split())
# A walk through these never leaves the machine.
_SOLID = (_LOCAL | _IMAGES | {kind for kind in _PSEUDO if not kind.startswith(b"fuse.")}) - {b"autofs"}
# Compiled where they are needed, which is not everywhere.
_ESCAPE = rb"\\([0-7]{3})"
_LAYERS = rb"(?:^|,)(?:lowerdir\+?|upperdir)=([^,]*)"
# A container has at most 500 layers.
_MOST_LAYERS = 512

_SECOND = 1_000_000_000
# Whether a superblock became read-only is in mountinfo alone, and no poll(2) tells of it in a namespace of our own.
_READ_EVERY = 10 * _SECOND
_LARGE_EVERY = 60 * _SECOND
_LARGE = 1 << 16
_MOST_BYTES = 16 << 20


class MountTable:
    """The table of mounts, read when the kernel says that it has changed, and now and then all the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._poll = select.poll()
        self._looked = self._due = 0
        self._content = b""
        self.is_cut = False

    def content_at(self, boottime: int) -> bytes:
        """The content at this tick, the same object while nothing has changed; raises OSError."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._descriptor, select.POLLPRI)
            self._poll.poll(0)
        elif boottime == self._looked or (boottime < self._due and not self._poll.poll(0)):
            self._looked = boottime
            return self._content
        self._looked = boottime
        content = self._read()
        self._due = boottime + (_READ_EVERY if len(content) < _LARGE else _LARGE_EVERY)
        if content != self._content:
            self._content = content
        return self._content

    def _read(self) -> bytes:
        parts, size = [], 0
        while size < _MOST_BYTES and (part := os.pread(self._descriptor, _LARGE, size)):
            parts.append(part)
            size += len(part)
        self.is_cut = size >= _MOST_BYTES
        return b"".join(parts)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._poll.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor, self._content = -1, b""


class Mount(NamedTuple):
    """One line of mountinfo."""

    number: int
    parent: int
    device: bytes
    root: bytes
    point: bytes
    kind: bytes
    source: bytes
    #: The options of the superblock, which a mount namespace of our own does not change.
    options: bytes

    @property
    def read_only(self) -> bool:
        # Since Linux 6.15 an ext4 that met an error stays "rw" and refuses every write.
        return not {b"ro", b"emergency_ro"}.isdisjoint(self.options.split(b","))

    @property
    def has_room(self) -> bool:
        return self.kind not in _PSEUDO and self.kind not in _IMAGES

    @property
    def is_network(self) -> bool:
        return self.kind in _NETWORK or self.kind.removeprefix(b"fuse.") in _NETWORK


class Place(NamedTuple):
    """One file system: the mount by which it is known, and how it is asked there."""

    mount: Mount
    way: str


def plain(text: bytes) -> bytes:
    """Without the octal escapes of blanks, line feeds and backslashes."""
    if b"\\" not in text:
        return text
    return re.sub(_ESCAPE, lambda found: bytes([int(found[1], 8) & 0xFF]), text)


def parse_mounts(content: bytes) -> Iterator[Mount]:
    """The mounts in the order of the file; a line of another form is left out."""
    for line in content.split(b"\n"):
        head, separator, tail = line.partition(b" - ")
        words, rest = head.split(b" "), tail.split(b" ", 2)
        if separator and len(words) >= 6 and len(rest) == 3 and words[0].isdigit() and words[1].isdigit():
            root, point, source = (plain(text) for text in (words[3], words[4], rest[1]))
            yield Mount(int(words[0]), int(words[1]), words[2], root, point, rest[0], source, rest[2])


class MountTree:
    """The tree as a path walks through it, over-mounts included."""

    def __init__(self, mounts: Iterable[Mount], prefix: bytes = b"") -> None:
        """`prefix` is where the tree's root lies for us."""
        self.mounts = {mount.number: mount for mount in mounts}
        self._on = {(mount.parent, mount.point): mount for mount in self.mounts.values()}
        roots = [mount for mount in self.mounts.values() if mount.parent not in self.mounts]
        self._root = next((mount for mount in roots if mount.point == b"/"), None)
        self._prefix = prefix
        self._solid: dict[int, bool] = {}
        self._steady: dict[bytes, bool] = {}

    def places(self) -> list[Place]:
        """Each file system once, by its device; real disks come first."""
        by_device: dict[bytes, list[Mount]] = {}
        for mount in self.mounts.values():
            if mount.has_room:
                by_device.setdefault(mount.device, []).append(mount)
        found = [place for same in by_device.values() if (place := self._place(same)) is not None]
        return sorted(found, key=lambda place: (place.mount.kind == b"overlay", place.mount.number))

    def _place(self, same: list[Mount]) -> Place | None:
        """The best of the mounts of one file system: the whole of it, at the shortest path."""
        order = sorted(same, key=lambda mount: (mount.root != b"/", len(mount.point), mount.point))
        first = order[0]
        if first.is_network:
            return Place(first, NONE)
        for mount in order:
            passed = self._walk(mount.point)
            if passed and passed[-1] is mount:
                return Place(mount, self._way(mount, passed))
        # A tmpfs that is covered is used by nobody.
        return None if first.kind == b"tmpfs" else Place(first, HIDDEN)

    def _walk(self, path: bytes) -> list[Mount]:
        """The mounts that a walk along a path passes, the last one being where it ends."""
        if self._root is None:
            return []
        passed = self._enter(self._root, b"/")
        for end in _ends(path):
            passed += self._enter(passed[-1], path[:end])[1:]
        return passed

    def _enter(self, mount: Mount, point: bytes) -> list[Mount]:
        """A mount and those that cover it at that point."""
        passed = [mount]
        # A mount is never its own parent, but a text that says so must not hold us.
        while (upper := self._on.get((passed[-1].number, point))) is not None and upper not in passed:
            passed.append(upper)
        return passed

    def _way(self, mount: Mount, passed: list[Mount]) -> str:
        if any(each.kind == b"autofs" for each in passed):
            return NONE  # whoever looks keeps it from being unmounted when idle
        if mount.kind in _LOCAL and all(map(self._is_solid, passed)) and self._is_steady(mount.point):
            return STATVFS
        return HELPER

    def _is_solid(self, mount: Mount) -> bool:
        """Whether it stays on this machine, the layers of an overlay included."""
        if mount.number not in self._solid:
            self._solid[mount.number] = True  # for layers that lie in the overlay itself
            self._solid[mount.number] = mount.kind in _SOLID and all(
                self._is_solid(each) for layer in _layers(mount) for each in self._walk(layer)
            )
        return self._solid[mount.number]

    def _is_steady(self, point: bytes) -> bool:
        """Whether only root could put something else, such as a link to a share, into this path."""
        return all(self._is_roots(point[:end] or b"/") for end in (0, *_ends(point)[:-1]))

    def _is_roots(self, folder: bytes) -> bool:
        if folder not in self._steady:
            try:
                status = os.lstat(self._prefix + folder)
            except OSError:
                return True  # nor can we go further
            shared = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
            self._steady[folder] = stat.S_ISDIR(status.st_mode) and status.st_uid == 0 and not shared
        return self._steady[folder]


def _ends(path: bytes) -> list[int]:
    """Where each component of an absolute path ends."""
    if path == b"/":
        return []
    return [*(found for found in range(1, len(path)) if path[found] == 47), len(path)]


def _layers(mount: Mount) -> list[bytes]:
    """The folders of an overlay, as far as they are named from the root."""
    if mount.kind != b"overlay":
        return []
    named = [layer for text in re.findall(_LAYERS, mount.options) for layer in plain(text).split(b":")]
    return [layer for layer in named[:_MOST_LAYERS] if layer.startswith(b"/")]
