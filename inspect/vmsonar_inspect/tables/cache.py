"""The cache of derived tables: a folder that can be deleted at any time.

The SHA-256 of every file is part of its name, so that both appear at once; a file that was damaged since is detected,
deleted and made again.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import beneath, sha256_at
from vmsonar_archive.write.outputs import refuse_archive

# Part of every key: another version may derive other tables.
_VERSION = "4"
_LIMIT = 8 * 1024**3
_KEPT = re.compile(r"(.+)-([0-9a-f]{64})(\.\w+)")


def usual_cache() -> "Cache | None":
    """The user's cache, or None if its folder cannot be written; a folder set by VMSONAR_CACHE must be writable."""
    if chosen := os.environ.get("VMSONAR_CACHE"):
        root = Path(chosen)
    else:
        # By the XDG Base Directory Specification.
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vmsonar", "tables")
    refuse_archive(root)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if "VMSONAR_CACHE" in os.environ:
            raise VmsonarError(f"cannot keep tables in VMSONAR_CACHE={root}: {error.strerror}") from None
        return None
    return Cache(root) if os.access(root, os.W_OK | os.X_OK) else None


def keep(path: Path, folder: Path) -> Path | None:
    """Moves a finished file into a folder, perhaps on another disk; None if there is no room."""
    name = _name(path)
    partial = folder / f"{path.name}.{os.getpid()}.partial"
    try:
        shutil.move(path, partial)
        return partial.rename(folder / name)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        return None


def make_once(name: str, folder: Path, make: Callable[[Path], None]) -> Path:
    """The file kept under a name; made unless it is there and intact."""
    path = kept(folder).get(name)
    if path is not None and is_whole(path):
        return path
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as work:
        path = Path(work) / name
        make(path)
        return path.rename(folder / _name(path))


def _name(path: Path) -> str:
    return f"{path.stem}-{sha256_at(path)[1]}{path.suffix}"


def kept(folder: Path) -> dict[str, Path]:
    """The files of a folder by the names they were kept under; unchecked."""
    found = (_KEPT.fullmatch(name) for name in sorted(os.listdir(folder)))
    return {match[1] + match[3]: folder / match[0] for match in found if match}


def is_whole(path: Path) -> bool:
    """Whether a kept file is intact; a damaged one is deleted."""
    match = _KEPT.fullmatch(path.name)
    try:
        if match is not None and sha256_at(path)[1] == match[2]:
            return True
    except (OSError, VmsonarError):
        pass
    with suppress(OSError):
        path.unlink()
    return False


class Cache:
    """Folders of derived tables, keyed by their inputs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, archive: str, day: str, parts: list[str]) -> Path:
        """The folder for tables made from exactly these inputs."""
        key = hashlib.sha256("\n".join([_VERSION, archive, day, *sorted(parts)]).encode()).hexdigest()[:24]
        path = beneath(self.root, f"{day}-{key}")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(path)
        return path

    def trim(self, limit: int = _LIMIT) -> None:
        """Removes the least recently used folders until the rest fits."""
        total = 0
        for _, folder in sorted(((_last_used(path), path) for path in self.root.glob("*/")), reverse=True):
            # Somebody else may trim at the same time.
            with suppress(OSError), os.scandir(folder) as entries:
                total += sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            if total > limit:
                shutil.rmtree(folder, ignore_errors=True)


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
