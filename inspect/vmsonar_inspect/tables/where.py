"""What a person points at (archives, bundles, folders of them, lakes) and the time frame that is asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.records import Stamp
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import beneath


@dataclass(frozen=True, slots=True)
class TimeFrame:
    """From since (inclusive) to until (exclusive); None is without limit."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_whole(self) -> bool:
        return self.since is None and self.until is None

    def touches(self, day: date) -> bool:
        """Whether any of that day is in the frame."""
        # Not by the day after: the last day of the calendar has none.
        begin = datetime.combine(day, time(), UTC)
        return (self.until is None or begin < self.until) and (
            self.since is None or day >= self.since.astimezone(UTC).date()
        )

    def splits(self, day: date) -> bool:
        """Whether only a part of that day is in the frame."""
        begin = datetime.combine(day, time(), UTC)
        limits = [limit.astimezone(UTC) for limit in (self.since, self.until) if limit is not None]
        return any(limit.date() == day and limit > begin for limit in limits)

    def holds(self, stamp: Stamp) -> bool:
        return (self.since is None or stamp.time >= self.since) and (
            self.until is None or stamp.time < self.until
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """One archive, bundle or lake."""

    path: Path
    is_lake: bool = False
    #: The address, where it is not a path.
    url: str | None = None

    @property
    def place(self) -> str:
        return self.url or str(self.path)

    def fingerprint(self, inside: str = "") -> str:
        """Changes whenever the file behind it does."""
        target = self.path / inside if self.path.is_dir() and inside else self.path
        status = target.stat()
        return f"{target.resolve()}:{inside}:{status.st_size}:{status.st_mtime_ns}"


def find_origins(paths: Sequence[Path | str], fetched: Path | None = None) -> list[Origin]:
    """Everything that is meant; a folder that is none of them stands for what lies in it.

    Bundles in an object store are copied into the folder `fetched` first.
    """
    origins: dict[Path, Origin] = {}
    for given in paths:
        if str(given).startswith("s3://"):
            for origin in _in_store(str(given), fetched):
                origins.setdefault(origin.path, origin)
            continue
        path = Path(given)
        if not path.exists():
            raise VmsonarError(
                f"{path} does not exist: give an archive's folder, a bundle, a folder of them, or a lake"
            )
        for origin in _at(path):
            origins.setdefault(origin.path.resolve(), origin)
    return list(origins.values())


def _in_store(url: str, fetched: Path | None) -> Iterator[Origin]:
    from vmsonar_inspect.tables.stores import ObjectStore

    store = ObjectStore(url)
    names = [""] if url.endswith(".tar") else list(store.list_all())
    if any(name.startswith("kind=") for name in names):
        yield Origin(Path(store.prefix), is_lake=True, url=url)
        return
    bundles = [name for name in names if not name or name.endswith(".tar")]
    if not bundles or fetched is None:
        raise VmsonarError(f"{url} holds no bundle and no lake")
    for name in bundles:
        whole = f"{store.prefix}/{name}".rstrip("/")
        target = beneath(fetched, whole.replace("/", "_"))
        target.parent.mkdir(parents=True, exist_ok=True)
        store.download(name, target)
        yield Origin(target, url=f"s3://{whole}")


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
