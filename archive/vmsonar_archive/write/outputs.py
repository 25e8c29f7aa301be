"""Where a command may write: never over what it reads, nor into an archive, nor over a stranger's file unasked.

Every command that writes goes through guard() before its work begins, and writes with whole().
"""

import csv
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vmsonar_archive.format import layout
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.files import AtomicFile

#: How much of a file is looked at to see what it is.
_HEAD = 65536
#: Stands in the footer of every answer in Parquet; a lake's files and other programs' have none.
PARQUET_MARK = b"vmsonar.answer"


class OutputKind(NamedTuple):
    """What an output is, and whether a file that is there already is an earlier one of the same."""

    name: str
    is_one: Callable[[BinaryIO], bool]


def guard(
    place: Path,
    inputs: Iterable[Path | str | None],
    kind: OutputKind | None = None,
    *,
    force: bool | None = False,
) -> Path:
    """The place where the output really goes; raises where it may not go.

    Without a kind the output is a folder, or a file that must be new. --force concerns only a file of another kind:
    what is read, and archives, stay as they are whatever is said. None: the command has no such option.
    """
    target = _real(place)
    refuse_archive(place)
    for given in _each_input(inputs):
        if _is_same(target, given):
            raise UsageError(f"{place} is what is read, it would be lost: write to another place")
        if _holds(given, target):
            raise UsageError(f"{place} lies inside {given}, which is read: write to a place outside it")
    if any(folder.name.startswith("kind=") for folder in (target, *target.parents)):
        raise UsageError(f"{place} lies inside a lake: write to a place outside it")
    if kind is not None:
        _check_file(place, target, kind, force)
    return target


def refuse_archive(place: Path) -> None:
    """Raises where a place is an archive or lies inside one: what is put there would become part of it."""
    target = _real(place)
    for folder in (target, *target.parents):
        if os.path.lexists(folder / layout.ARCHIVE_FILE):
            raise UsageError(f"{place} lies inside the archive {folder}: choose a place outside it")


def _real(place: Path) -> Path:
    """Where a path leads; a link that another user laid is not followed."""
    with suppress(OSError):
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            raise UsageError(f"{place} is a link of uid {status.st_uid}: name the file that is meant")
    try:
        # What a pipe or device is called, /dev/stdout for example, leads to no name that could be opened.
        return place.absolute() if _is_special(place) else place.resolve()
    except (OSError, RuntimeError) as error:
        raise VmsonarError(f"cannot write {place}: {getattr(error, 'strerror', None) or error}") from None


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _each_input(inputs: Iterable[Path | str | None]) -> Iterator[Path]:
    """What is read: also the bundles and archives in a folder of them."""
    for given in inputs:
        if given is None or str(given).startswith("s3://"):
            continue
        path = Path(given)
        yield path
        if path.is_dir() and not _is_tree(path):
            with suppress(OSError):
                yield from (each for each in path.iterdir() if each.suffix == ".tar" or _is_tree(each))


def _is_tree(path: Path) -> bool:
    """Whether a folder is read as a whole: an archive or a lake."""
    return os.path.lexists(path / layout.ARCHIVE_FILE) or (path.is_dir() and any(path.glob("kind=*")))


def _is_same(target: Path, given: Path) -> bool:
    if not (target.exists() and given.exists()):
        return target == given.resolve()
    # A folder of bundles may take what is made of them.
    return target.samefile(given) and (_is_tree(given) or not given.is_dir())


def _holds(given: Path, target: Path) -> bool:
    return _is_tree(given) and any(folder.exists() and folder.samefile(given) for folder in target.parents)


def _check_file(place: Path, target: Path, kind: OutputKind, force: bool | None) -> None:
    try:
        status = target.stat()
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise VmsonarError(
                f"cannot write {place}: {target.parent} is not a folder: make it first"
            ) from None
        return
    except OSError as error:
        raise VmsonarError(f"cannot write {place}: {error.strerror}") from None
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{place} is a folder: name a file in it")
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0 or force:
        return
    try:
        with target.open("rb") as file:
            known = kind.is_one(file)
    except OSError:
        known = False
    if not known:
        remedy = "" if force is None else ", or have it replaced with --force"
        raise UsageError(
            f"{place} exists and is not {kind.name} that vmsonar wrote: choose another name{remedy}"
        )


@contextmanager
def whole(target: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete, or not at all; a pipe or device is written as it is."""
    if _is_special(target):
        with target.open("wb") as sink:
            yield sink
        return
    partial = f".{target.name[:200]}.{os.getpid()}.partial"
    with AtomicFile(target, mode=0o666, temporary=partial, durable=durable) as sink:
        yield sink


def remove_unfinished(folder: Path) -> None:
    """Removes what processes that are no more had begun to write with whole()."""
    for path in folder.glob(".*.partial"):
        writer = path.name.split(".")[-2]
        if writer.isdigit() and not Path("/proc", writer).exists():
            path.unlink(missing_ok=True)


def _is_page(file: BinaryIO) -> bool:
    head = file.read(_HEAD)
    return head.startswith(b"<!doctype html>") and b": vmsonar</title>" in head


def _is_csv(file: BinaryIO) -> bool:
    """Whether it has a line of names and then rows as long as that, with the line ends of RFC 4180."""
    head = file.read(_HEAD)
    cut = head if len(head) < _HEAD else head[: head.rfind(b"\r\n") + 2]
    try:
        text = cut.decode()
        if "\0" in text or not text.endswith("\r\n"):
            return False
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error):
        return False
    # The last row may have been cut within its quotes.
    names, *rest = rows[:-1] if len(head) == _HEAD and len(rows) > 2 else rows
    lengths = {len(row) for row in rest}
    alone = len(names) == 1 and not str(getattr(file, "name", "")).endswith(".csv")
    return all(names) and not alone and lengths <= {len(names)}


def _is_parquet(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    if len(tail) < 8 or tail[4:] != b"PAR1":
        return False
    file.seek(max(0, size - 8 - int.from_bytes(tail[:4], "little")))
    return PARQUET_MARK in file.read(_HEAD)


PAGE = OutputKind("a page", _is_page)
CSV = OutputKind("CSV", _is_csv)
#: One object a line, in an array.
JSON = OutputKind("JSON", lambda file: file.read(3) in (b"[\n{", b"[]\n"))
CARD = OutputKind("a card", lambda file: b'"recorded_cpu_seconds":' in file.read(_HEAD))
PARQUET = OutputKind("a Parquet file", _is_parquet)
SONAR = OutputKind("a file of Sonar's tree", lambda file: file.read(16).startswith(b'{"meta":{'))
