"""Files that appear whole or not at all, and paths that cannot lead elsewhere (open(2), openat(2), rename(2))."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive import layout
from vmsonar_archive.errors import VmsonarError, cannot_open

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Refused(VmsonarError):
    """Something in the tree is not the plain file that belongs there."""


def fsync_folder(folder: Path) -> None:
    """Makes names that were created or changed in a folder durable."""
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(root: Path, folder: Path) -> None:
    """Makes the folders from root down to folder, each durable in its parent."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == root:
            break
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(mode=layout.FOLDER_MODE, exist_ok=True, parents=made == root)
        fsync_folder(made.parent)


def create(path: Path) -> BinaryIO:
    """Creates a file that must not exist yet, unbuffered, durable in its folder."""
    descriptor = os.open(
        path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, layout.FILE_MODE
    )
    try:
        fsync_folder(path.parent)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "r+b", buffering=0)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of it; a short write is tried again and ends in the error behind it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_whole(path: Path, content: bytes, mode: int = layout.FILE_MODE) -> None:
    """Writes a small file by temp, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.tmp")
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    fsync_folder(path.parent)


def open_root(root: Path) -> int:
    """A descriptor of the archive's folder, for open_beneath; the caller closes it."""
    try:
        return os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    except NotADirectoryError:
        raise VmsonarError(f"{root} is not a folder: give the folder of an archive, or a bundle") from None
    except FileNotFoundError:
        raise VmsonarError(f"{root} does not exist") from None
    except OSError as error:
        raise cannot_open(root, error) from None


def open_beneath(root: int, path: str, owner: int | None = None) -> BinaryIO:
    """Opens a plain file below a folder, following no link in any component.

    The tree may belong to somebody less trusted than we are: a link, a device, a FIFO, a second hard link or
    another owner's file is refused.
    """
    *folders, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*folders, name)):
        raise Refused(f"{path}: not a path inside the archive")
    held = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=held)
            os.close(held)
            held = below
        descriptor = os.open(name, _FILE, dir_fd=held)
    except NotADirectoryError:
        raise Refused(f"{path}: a part of the path is not a folder") from None
    except OSError as error:
        if error.errno == 40:  # ELOOP: what O_NOFOLLOW says of a symbolic link
            raise Refused(f"{path}: is a symbolic link") from None
        raise
    finally:
        os.close(held)
    file = os.fdopen(descriptor, "rb", buffering=0)
    try:
        _check_plain(os.fstat(descriptor), path, owner)
    except Refused:
        file.close()
        raise
    return file


def _check_plain(status: os.stat_result, path: str, owner: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{path}: is not a regular file")
    if status.st_nlink > 1:
        raise Refused(f"{path}: has more than one hard link")
    if owner is not None and status.st_uid != owner:
        raise Refused(f"{path}: belongs to uid {status.st_uid}, the archive to uid {owner}")


def list_tree(root: int) -> Iterator[tuple[str, int]]:
    """Paths and sizes of what lies in the archive's folder and its day folders, sorted; links are not followed.

    A size of -1 marks what is not a regular file. Folders that are not part of a date are left out.
    """
    yield from _list_folder(root, "", depth=0)


def _list_folder(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if depth < 3 and entry.name.isascii() and entry.name.isdigit():
                    below = os.open(entry.name, _FOLDER, dir_fd=folder)
                    try:
                        yield from _list_folder(below, path + "/", depth + 1)
                    finally:
                        os.close(below)
            elif entry.is_file(follow_symlinks=False):
                try:
                    yield path, entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
            else:
                yield path, -1
