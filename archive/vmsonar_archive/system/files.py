"""Files that appear whole or not at all, and paths that cannot lead elsewhere (open(2), openat(2), rename(2))."""

import errno
import hashlib
import itertools
import os
import resource
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, cast

from vmsonar_archive.system.errors import VmsonarError, cannot_open

#: Flags to open a folder, but no link to one.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# More than ten years of hours; it bounds what a hostile folder can make us hold.
_MAX_FILES = 120_000
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What "no limit" of descriptors counts as.
_UNLIMITED = 1 << 20

FOLDER_MODE = 0o750
FILE_MODE = 0o640


class Refused(VmsonarError):
    """Something in the tree is not the plain file that belongs there."""


@contextmanager
def held(descriptor: int) -> Iterator[int]:
    """Closes a descriptor when the block is left."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def fsync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    # The archive itself may be named by a link.
    with held(os.open(folder, FOLDER & ~os.O_NOFOLLOW)) as descriptor:
        os.fsync(descriptor)


def make_folders(root: Path, folder: Path, changed: Callable[[Path], None] = fsync_folder) -> None:
    """Makes the folders from root down to folder and calls `changed` for each parent; refuses links on the way."""
    missing: list[Path] = []
    inside = (one for one in (folder, *folder.parents) if root in one.parents)
    if linked := next(filter(Path.is_symlink, inside), None):
        detail = "is a symbolic link: the archive's folders are not"
        raise NotADirectoryError(errno.ENOTDIR, detail, str(linked))
    while not folder.is_dir():
        missing.append(folder)
        if folder == root:
            break
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(mode=FOLDER_MODE, exist_ok=True, parents=made == root)
        changed(made.parent)


def create(path: Path, changed: Callable[[Path], None] = fsync_folder) -> BinaryIO:
    """Creates a file that must not exist yet, unbuffered; `changed` makes its name durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        changed(path.parent)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "r+b", buffering=0)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes everything; continues after a short write."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class AtomicFile:
    """A new file that takes its place whole or not at all: temporary, fsync, rename, fsync of the folder.

    As a context manager it yields the file, and commits unless an exception leaves the block.
    """

    def __init__(
        self,
        path: Path,
        *,
        folder: int | None = None,
        mode: int = FILE_MODE,
        temporary: str | None = None,
        durable: bool = True,
    ) -> None:
        """With a `folder`, a descriptor, the path is a name in it; `temporary` replaces the usual name until then."""
        self._path = path
        self._folder = folder
        self._temporary = path.with_name(temporary or f".{path.name}.tmp")
        self._durable = durable
        with suppress(FileNotFoundError):
            os.unlink(self._temporary, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.file: BinaryIO = os.fdopen(os.open(self._temporary, flags, mode, dir_fd=folder), "wb")

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abandon()

    def commit(self) -> None:
        """Puts the file in its place; leaves nothing behind when that fails."""
        try:
            self.file.flush()
            if self._durable:
                os.fsync(self.file.fileno())
            self.file.close()
            os.rename(self._temporary, self._path, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            self.abandon()
            raise
        if self._durable and self._folder is None:
            fsync_folder(self._path.parent)
        elif self._durable and self._folder is not None:
            os.fsync(self._folder)

    def abandon(self) -> None:
        """Leaves nothing behind."""
        with suppress(OSError):  # what the disk refused before, it refuses again
            self.file.close()
        with suppress(OSError):
            os.unlink(self._temporary, dir_fd=self._folder)


def write_whole(path: Path, content: bytes, mode: int = FILE_MODE, *, folder: int | None = None) -> None:
    """Writes a small file atomically and durably."""
    with AtomicFile(path, folder=folder, mode=mode) as file:
        file.write(content)


def rename_durably(temporary: Path, path: Path) -> None:
    """Puts a finished file in its place, in the same folder."""
    temporary.rename(path)
    fsync_folder(path.parent)


def raise_descriptor_limit() -> int:
    """Raises RLIMIT_NOFILE as far as allowed, and returns how many descriptors this process may then hold."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def parts_of(path: str) -> list[str]:
    """Splits a path inside some root into names; refuses paths that could lead elsewhere."""
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", "..") or not part.isprintable() or len(part.encode()) > 255:
            raise Refused(f"{path[:80]!r} is no path inside a folder: {part[:80]!r} is no name of a file")
    return parts


def beneath(root: Path, *paths: str) -> Path:
    """Joins foreign paths to a root; the only way in which outside text becomes a path."""
    return root.joinpath(*(part for path in paths for part in parts_of(path)))


def open_regular(path: Path) -> FileIO:
    """Opens a regular file, unbuffered; refuses a FIFO, a device or a folder without waiting for it."""
    if not stat.S_ISREG(path.stat().st_mode):
        # Opening some devices does something already.
        raise Refused(f"{path}: is not a regular file")
    return FileIO(_checked(os.open(path, _FILE & ~os.O_NOFOLLOW), str(path)))


def sha256_of(stream: BinaryIO) -> str:
    """The SHA-256 of what is left to read of a stream."""
    return hashlib.file_digest(cast(FileIO, stream), "sha256").hexdigest()


def sha256_at(path: Path) -> tuple[int, str]:
    """The size and the SHA-256 of a regular file."""
    with open_regular(path) as file:
        digest = sha256_of(cast(BinaryIO, file))
        return file.tell(), digest


def sha256_of_chunks(chunks: Iterable[bytes]) -> tuple[int, str]:
    """The size and the SHA-256 of content that comes in pieces."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def open_root(root: Path, *, for_worker: bool = False) -> int:
    """A descriptor of the archive's folder, for open_beneath; the caller closes it.

    Root opens no folder of somebody else, unless it only hands it to a worker that has the owner's rights.
    """
    try:
        descriptor = os.open(root, FOLDER & ~os.O_NOFOLLOW)
    except NotADirectoryError:
        raise VmsonarError(f"{root} is not a folder: give the folder of an archive, or a bundle") from None
    except FileNotFoundError:
        raise VmsonarError(f"{root} does not exist") from None
    except OSError as error:
        raise cannot_open(root, error) from None
    owner = os.fstat(descriptor).st_uid
    if owner != 0 and os.geteuid() == 0 and not for_worker:
        os.close(descriptor)
        raise Refused(
            f"{root} belongs to uid {owner}: root does not open it; name it alone, be its owner, or use a bundle"
        )
    return descriptor


def open_inside(root: Path, path: str) -> BinaryIO:
    """Opens a plain file of an archive by the archive's folder; as root only files of its owner with one name."""
    with held(os.open(root, FOLDER & ~os.O_NOFOLLOW)) as descriptor:
        owner = os.fstat(descriptor).st_uid
        is_foreign = owner != 0 and os.geteuid() == 0
        return open_beneath(descriptor, path, owner if is_foreign else None, linked=not is_foreign)


def read_inside(root: Path, path: str, limit: int = 1024 * 1024) -> bytes:
    """The content of a small plain file of an archive."""
    with open_inside(root, path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Refused(f"{root}/{path} is far too large to be what its name says")
    return content


def open_beneath(root: int, path: str, owner: int | None = None, *, linked: bool = False) -> BinaryIO:
    """Opens a plain file below a folder, following no link in any component.

    The tree may belong to somebody less trusted than we are: a link, a device, a FIFO, a second hard link (unless
    linked) or another owner's file is refused.
    """
    *folders, name = parts_of(path)
    above = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, FOLDER, dir_fd=above)
            os.close(above)
            above = below
        descriptor = os.open(name, _FILE, dir_fd=above)
    except NotADirectoryError:
        raise Refused(f"{path}: a part of the path is not a folder") from None
    except OSError as error:
        if error.errno == errno.ELOOP:  # what O_NOFOLLOW says of a symbolic link
            raise Refused(f"{path}: is a symbolic link") from None
        raise
    finally:
        os.close(above)
    return os.fdopen(_checked(descriptor, path, owner, linked=linked), "rb", buffering=0)


def open_own(path: Path, flags: int) -> int:
    """Opens a plain file for writing and creates it if missing; refuses links and FIFOs."""
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{path}: is a symbolic link") from None
        raise
    return _checked(descriptor, str(path))


def _checked(descriptor: int, path: str, owner: int | None = None, *, linked: bool = True) -> int:
    """The descriptor, unless it is one of something else than a plain file: then it is closed."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        fault = "is not a regular file"
    elif status.st_nlink > 1 and not linked:
        fault = "has more than one hard link"
    elif owner is not None and status.st_uid != owner:
        fault = f"belongs to uid {status.st_uid}, the archive to uid {owner}"
    else:
        return descriptor
    os.close(descriptor)
    raise Refused(f"{path}: {fault}")


def list_tree(root: int) -> Iterator[tuple[str, int]]:
    """Paths and sizes of what lies in the archive's folder and its day folders, sorted; links are not followed.

    A size of -1 marks what is not a regular file. Folders that are not part of a date are left out.
    """
    for number, found in enumerate(_list_folder(root, "", depth=0)):
        if number >= _MAX_FILES:
            raise VmsonarError(f"{found[0]}: an archive has no more than {_MAX_FILES} files, here are more")
        yield found


def _list_folder(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        found = sorted(itertools.islice(entries, _MAX_FILES + 1), key=lambda entry: entry.name)
        for entry in found:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if depth < 3 and entry.name.isascii() and entry.name.isdigit():
                    with held(os.open(entry.name, FOLDER, dir_fd=folder)) as below:
                        yield from _list_folder(below, path + "/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                try:
                    yield path, entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
            else:
                yield path, -1
