"""Where derived tables are kept between looks: a folder that can be deleted at any time."""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from vmsonar_archive.errors import VmsonarError

# Part of every key: what an older version derived is not what this one would.
_VERSION = "2"
_LIMIT = 8 * 1024**3


def default_cache() -> Path:
    """$VMSONAR_CACHE, or the user's cache folder (XDG Base Directory Specification)."""
    if chosen := os.environ.get("VMSONAR_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vmsonar" / "tables"


def usual_cache() -> "Cache | None":
    """The cache, or none where the user's own folder cannot be written; a folder that was chosen must do."""
    root = default_cache()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if "VMSONAR_CACHE" in os.environ:
            raise VmsonarError(f"cannot keep tables in VMSONAR_CACHE={root}: {error.strerror}") from None
        return None
    return Cache(root) if os.access(root, os.W_OK | os.X_OK) else None


def keep(path: Path, folder: Path) -> bool:
    """Moves a finished file into a folder, perhaps on another disk; False where that has no room for it."""
    partial = folder / f"{path.name}.{os.getpid()}.partial"
    try:
        shutil.move(path, partial)
        partial.rename(folder / path.name)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        return False
    return True


class Cache:
    """Folders of derived tables by what they were derived from."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, archive: str, day: str, parts: list[str]) -> Path:
        """The folder for tables that were made from exactly this."""
        key = hashlib.sha256("\n".join([_VERSION, archive, day, *sorted(parts)]).encode()).hexdigest()[:24]
        path = self.root / f"{day}-{key}"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(path)
        return path

    def trim(self, limit: int = _LIMIT) -> None:
        """Removes what was used longest ago until the rest fits."""
        if not self.root.is_dir():
            return
        folders = sorted(self.root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for folder in folders:
            total += sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
            if total > limit:
                shutil.rmtree(folder, ignore_errors=True)
