"""Archives that belong to a stranger who has laid traps for root in them."""

import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vmsonar_archive.format import layout
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.parquet.derive import derive_due

from tests.making.bundles import fill, open_writer
from tests.real.stranger import ANOTHER, STRANGER
from vmsonar.host.identity import node_identity
from vmsonar.host.roots import Host

#: What only root may read; it must turn up nowhere.
SECRET = "the-secret-of-root-8d1b"
#: Two finished days: one that has its tables, one that is to get them.
FIRST = datetime.now(UTC).replace(hour=10, minute=58, second=0, microsecond=0) - timedelta(days=3)


@dataclass(frozen=True)
class Place:
    """One stranger's home beside what is root's alone."""

    base: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def tree(self) -> Path:
        return self.home / "archive"

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def waiting(self) -> Path:
        """The stranger's as well, but nobody can exchange it."""
        return self.base / "waiting"

    @property
    def root(self) -> Path:
        """Root's: nothing in it may be read, changed or made."""
        return self.base / "root"

    @property
    def secret(self) -> Path:
        return self.root / "secret"

    @property
    def output(self) -> Path:
        return self.base / "output"

    @property
    def private(self) -> Path:
        """What root names on the command line, and only root may read."""
        return self.base / "private"

    @property
    def scratch(self) -> Path:
        return self.base / "tmp"

    def day(self, days: int) -> Path:
        return self.tree / layout.day_path((FIRST + timedelta(days=days)).date())

    @property
    def segment(self) -> Path:
        return sorted(self.day(1).glob("*.zst"))[0]

    @property
    def table(self) -> Path:
        return self.day(0) / layout.LAST_TABLE


Trap = Callable[[Place], None]


def _link(path: Path, target: Path) -> None:
    _remove(path)
    path.symlink_to(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _fifo(path: Path) -> None:
    _remove(path)
    os.mkfifo(path, 0o666)


def _hard(path: Path, target: Path) -> None:
    _remove(path)
    os.link(target, path)


def _socket(path: Path) -> None:
    _remove(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _endless(path: Path) -> None:
    """/dev/zero under a name of ours."""
    _remove(path)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def _sparse(path: Path, size: int = 2**28) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def _foreign(path: Path) -> None:
    os.chmod(path, 0o600)
    os.lchown(path, ANOTHER, ANOTHER)


def _today(place: Place) -> Path:
    today = place.tree / layout.day_path(datetime.now(UTC).date())
    today.parent.mkdir(parents=True, exist_ok=True)
    return today


def _temporaries(place: Place) -> None:
    for path in (place.segment, place.day(1) / layout.LAST_TABLE, place.day(1) / "process.parquet"):
        (path.parent / layout.temporary(path.name)).symlink_to(place.secret)
    (place.tree / f".{layout.NAMESPACE_FILE}.tmp").symlink_to(place.secret)
    (place.tree / layout.temporary(layout.UPLOADS_FILE)).symlink_to(place.secret)
    (place.tree / layout.NAMESPACE_FILE).unlink()


def _escapes(place: Place) -> None:
    for name in ("\x1b]0;owned\x07", "a\nb", "%s", "..\\..", "\u202egnp.zst"):
        (place.tree / name).write_text("x")
        (place.day(1) / name).write_text("x")
    (place.tree / "2026" / "\x1b[2J").mkdir(parents=True, exist_ok=True)


def _loops(place: Place) -> None:
    _link(place.tree / layout.JOURNAL_FILE, place.tree / layout.JOURNAL_FILE)
    _link(place.tree / layout.NAMESPACE_FILE, place.tree)


def _in_state(place: Place) -> None:
    _link(place.state / "cursor.json", place.secret)
    _fifo(place.state / "status.json")
    _link(place.state / layout.LOCK_FILE, place.secret)
    _link(place.state / "undeliverable.jsonl", place.secret)


def _state_waits(place: Place) -> None:
    _fifo(place.state / "cursor.json")
    _fifo(place.state / layout.LOCK_FILE)


def _each(*traps: Trap) -> Trap:
    def all_of_them(place: Place) -> None:
        for trap in traps:
            trap(place)

    return all_of_them


#: What the stranger did, by name.
TRAPS: dict[str, Trap] = {
    "identity is a link": lambda p: _link(p.tree / layout.ARCHIVE_FILE, p.secret),
    "identity is a FIFO": lambda p: _fifo(p.tree / layout.ARCHIVE_FILE),
    "identity is a hard link": lambda p: _hard(p.tree / layout.ARCHIVE_FILE, p.secret),
    "identity is a device": lambda p: _endless(p.tree / layout.ARCHIVE_FILE),
    "journal is a link": lambda p: _link(p.tree / layout.JOURNAL_FILE, p.secret),
    "journal is a FIFO": lambda p: _fifo(p.tree / layout.JOURNAL_FILE),
    "journal is a hard link": lambda p: _hard(p.tree / layout.JOURNAL_FILE, p.secret),
    "journal is a socket": lambda p: _socket(p.tree / layout.JOURNAL_FILE),
    "namespace is a link": lambda p: _link(p.tree / layout.NAMESPACE_FILE, p.secret),
    "namespace is a FIFO": lambda p: _fifo(p.tree / layout.NAMESPACE_FILE),
    "lock is a link": lambda p: _link(p.tree / layout.LOCK_FILE, p.secret),
    "lock is a FIFO": lambda p: _fifo(p.tree / layout.LOCK_FILE),
    "day is a link": lambda p: _link(p.day(1), p.root / "folder"),
    "year is a link": lambda p: _link(p.day(1).parent.parent, p.root / "folder"),
    "today is a link": lambda p: _link(_today(p), p.root / "folder"),
    "segments are links": lambda p: _each(
        *(lambda _, s=s: _link(s, p.secret) for s in p.tree.rglob("*.zst"))
    )(p),
    "segments are FIFOs": lambda p: _each(*(lambda _, s=s: _fifo(s) for s in p.tree.rglob("*.zst")))(p),
    "segments are hard links": lambda p: _each(
        *(lambda _, s=s: _hard(s, p.secret) for s in p.tree.rglob("*.zst"))
    )(p),
    "tables are links": lambda p: _each(
        *(lambda _, s=s: _link(s, p.secret) for s in p.tree.rglob("*.parquet"))
    )(p),
    "tables are FIFOs": lambda p: _each(*(lambda _, s=s: _fifo(s) for s in p.tree.rglob("*.parquet")))(p),
    "earlier is a link": lambda p: _link(p.tree / layout.EARLIER_FOLDER, p.root / "folder"),
    "uploads are a FIFO": lambda p: _fifo(p.tree / layout.UPLOADS_FILE),
    "uploads are a link": lambda p: _link(p.tree / layout.UPLOADS_FILE, p.secret),
    "temporary names are links": _temporaries,
    "files are huge": lambda p: _each(
        lambda _: _sparse(p.segment), lambda _: _sparse(p.tree / layout.NAMESPACE_FILE)
    )(p),
    "the identity is huge": lambda p: _sparse(p.tree / layout.ARCHIVE_FILE),
    "names hold escapes": _escapes,
    "links lead in circles": _loops,
    "files belong to another": lambda p: _each(
        lambda _: _foreign(p.segment), lambda _: _foreign(p.tree / layout.NAMESPACE_FILE)
    )(p),
    "the state is made of links": _in_state,
    "the state is made of FIFOs": _state_waits,
    "a day is exchanged again and again": lambda p: None,
    "the archive is exchanged again and again": lambda p: None,
}
#: What is exchanged for a link while a command runs.
EXCHANGED: dict[str, Callable[[Place], Path]] = {
    "a day is exchanged again and again": lambda p: p.day(1),
    "the archive is exchanged again and again": lambda p: p.tree,
}


def make_model(root: Path, *, ours: bool) -> Path:
    """An archive of two finished days, of this machine or of another; the first day has its tables."""
    node = node_identity(Host()) if ours else NodeIdentity(machine_id="f" * 32, hostname_short="other")
    for day in (0, 1):
        begin = FIRST + timedelta(days=day)
        writer = open_writer(root, begin, node)
        fill(writer, 16, begin)
        writer.close()
        if day == 0:
            list(derive_due(root, begin + timedelta(days=1)))
    return root


@contextmanager
def laid(trap: str, models: dict[bool, Path]) -> Iterator[Place]:
    """A home with an archive in which one trap is laid; or all of a list, with + between."""
    base = Path(tempfile.mkdtemp(prefix="hostile-"))
    place = Place(base)
    try:
        base.chmod(0o755)
        names = trap.split(" + ") if trap else []
        shutil.copytree(models["earlier is a link" not in names], place.tree)
        for folder, mode in (
            (place.root, 0o700), (place.root / "folder", 0o700), (place.output, 0o700), (place.private, 0o700),
            (place.scratch, 0o1777), (place.state, 0o755), (place.waiting, 0o755),
        ):  # fmt: skip
            folder.mkdir()
            folder.chmod(mode)
        place.secret.write_text(f"{SECRET}\n")
        (place.root / "folder" / "kept").write_text(SECRET)
        place.secret.chmod(0o600)
        for name in names:
            TRAPS[name](place)
        for path in (place.waiting, place.home, *place.home.rglob("*")):
            status = path.lstat()
            alone = status.st_nlink == 1 or stat.S_ISDIR(status.st_mode)
            if alone and status.st_uid != ANOTHER:
                os.lchown(path, STRANGER, STRANGER)
        with _exchanging([EXCHANGED[name](place) for name in names if name in EXCHANGED], place):
            yield place
    finally:
        shutil.rmtree(base)


@contextmanager
def _exchanging(paths: list[Path], place: Place) -> Iterator[None]:
    """Exchanges folders for links to root's, thousands of times a second."""
    done = threading.Event()

    def exchange(path: Path) -> None:
        aside = place.home / f"aside-{path.name}"
        made = 0
        while not done.is_set():
            path.rename(aside)
            try:
                path.symlink_to(place.root / "folder")
                os.lchown(path, STRANGER, STRANGER)
                path.unlink()
                aside.rename(path)
            except OSError:  # a recorder made a new folder where it found none
                made += 1
                path.rename(place.home / f"made-{made}")
                aside.rename(path)

    threads = [threading.Thread(target=exchange, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
