"""Where derived tables are kept between looks: a folder that can be deleted at any time."""

import hashlib
import os
import shutil
from pathlib import Path

# Part of every key: what an older version derived is not what this one would.
_VERSION = "2"
_LIMIT = 8 * 1024**3


def default_cache() -> Path:
    """$VMSONAR_CACHE, or the user's cache folder (XDG Base Directory Specification)."""
    if chosen := os.environ.get("VMSONAR_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vmsonar" / "tables"


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
