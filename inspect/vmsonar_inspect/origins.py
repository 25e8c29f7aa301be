"""What a person points at: archives, bundles, folders of them, lakes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive import layout
from vmsonar_archive.errors import VmsonarError


@dataclass(frozen=True, slots=True)
class Origin:
    """One archive, bundle or lake."""

    path: Path
    is_lake: bool = False

    def fingerprint(self, inside: str = "") -> str:
        """Changes whenever the file behind it does."""
        target = self.path / inside if self.path.is_dir() and inside else self.path
        status = target.stat()
        return f"{target.resolve()}:{inside}:{status.st_size}:{status.st_mtime_ns}"


def find_origins(paths: Sequence[Path | str]) -> list[Origin]:
    """Everything that is meant; a folder that is none of them stands for what lies in it."""
    origins: dict[Path, Origin] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise VmsonarError(
                f"{path} does not exist: give an archive's folder, a bundle, a folder of them, or a lake"
            )
        for origin in _at(path):
            origins.setdefault(origin.path.resolve(), origin)
    return list(origins.values())


def _at(path: Path) -> Iterator[Origin]:
    if path.is_file() or (path / layout.ARCHIVE_FILE).exists():
        yield Origin(path)
    elif is_lake(path):
        yield Origin(path, is_lake=True)
    else:
        found = [Origin(entry) for entry in sorted(path.iterdir()) if _is_archive(entry)]
        if not found:
            raise VmsonarError(
                f"no archive and no bundle in {path}: give the folder that holds archive.json, or a bundle"
            )
        yield from found


def _is_archive(path: Path) -> bool:
    return path.suffix == ".tar" if path.is_file() else (path / layout.ARCHIVE_FILE).exists()


def is_lake(path: Path) -> bool:
    """Whether a folder has the partitions of a lake."""
    return any(path.glob("kind=*"))
