"""Bundles an archive, which is only read: here or, with the rights of its owner, in a process of its own (unix(7)).

`python -m vmsonar_archive.bundle.worker DESCRIPTOR` is that process. It ends by os._exit: whatever an error still
holds, such as an unfinished upload, is not tidied up.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from vmsonar_archive.bundle.increment import acknowledge, has_new, read_acknowledged, taken_up_to
from vmsonar_archive.bundle.plan import plan_whole, span_of
from vmsonar_archive.bundle.redact import Redactor, key_from_namespace
from vmsonar_archive.bundle.select import BundleSelection, plan_selected
from vmsonar_archive.bundle.send import s3
from vmsonar_archive.bundle.send.delivery import Delivery, OpenOutput, ToUrl, deliver
from vmsonar_archive.bundle.signer import signer_through
from vmsonar_archive.bundle.snapshot import ArchiveSnapshot, take_snapshot
from vmsonar_archive.bundle.tables import add_tables, load_tables
from vmsonar_archive.bundle.write import Bundled, Signer
from vmsonar_archive.format import layout
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.records.fields import Sensitivity
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError, VmsonarError
from vmsonar_archive.system.moments import covered_words, span_words
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.system.rights import become

_LIMIT = 64 * 1024 * 1024
#: Progress is sent in steps of this many bytes.
_STEP = 4 * 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """What a bundle is to hold, if not everything as it is."""

    #: An ed25519 key that signs the bundle.
    sign: Path | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Kinds of rows to keep; empty for all.
    only: tuple[str, ...] = ()
    #: What to replace by pseudonyms, and under which key; None for the archive's own.
    redact: frozenset[Sensitivity] = frozenset()
    redact_key: bytes | None = None
    #: Make the Parquet tables of days that have none.
    parquet: bool = False
    #: Leave out what a confirmed upload has taken before.
    increment: bool = False


NO_OPTIONS = BundleOptions()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be bundled, how, and where to."""

    #: The archive's folder, open.
    folder: int
    name: str
    options: BundleOptions
    delivery: Delivery
    #: For a worker: the user and group to become.
    owner: tuple[int, int] | None
    #: For a worker: where digests go to and signatures come from, and the length of a signature.
    signer: tuple[int, int, int] | None


def work(task: Task, signer: Signer | None, open_output: OpenOutput, progress: Progress) -> Bundled:
    """Runs a task with the rights of this process."""
    files.raise_descriptor_limit()  # every file is held open at once, so that the writer can go on
    options = task.options
    snapshot = take_snapshot(task.folder, task.name)
    try:
        selection = _select(task.folder, snapshot, options)
        plan = plan_whole(snapshot) if selection.is_whole else plan_selected(snapshot, selection)
        if selection.after_seq is None and not (selection.is_whole or plan.has_samples):
            raise _no_samples(snapshot, selection)
        if selection.taken is not None and not has_new(snapshot, selection.taken):
            detail = f"no record since {selection.after_seq}: there is nothing to bundle"
            note = Finding.of(Code.UP_TO_DATE, "", detail)
            return Bundled(name=plan.folder, head=plan.record.head, findings=[*plan.findings, note])
        with tempfile.TemporaryDirectory(prefix="vmsonar-") as tables:
            if options.parquet:
                plan = add_tables(plan, Path(tables))
            bundled = deliver(task.delivery, plan, signer, open_output, progress)
        if options.increment and bundled.confirmed and bundled.sha256:
            acknowledge(task.folder, snapshot, bundled.name, bundled.sha256)
        return bundled
    finally:
        snapshot.close()


def _no_samples(snapshot: ArchiveSnapshot, selection: BundleSelection) -> AnswerIsNo:
    """The error for a selection without samples: says what was asked for, and what there is."""
    first, last = span_of([held.facts for name, held in snapshot.segments() if name.kind == layout.SAMPLE])
    span = span_words(selection.since, selection.until)
    return AnswerIsNo(f"no samples {span}".rstrip() + f": {covered_words(first, last)}")


def _select(folder: int, snapshot: ArchiveSnapshot, options: BundleOptions) -> BundleSelection:
    """Completes the options with what only the archive knows."""
    owner = os.fstat(folder).st_uid
    earlier = read_acknowledged(folder, owner) if options.increment else None
    after = taken_up_to(snapshot, earlier) if earlier else None
    redactor = None
    if options.redact:
        redactor = Redactor(options.redact_key or _own_key(folder, snapshot, owner), options.redact)
    taken = earlier.taken if earlier else None
    return BundleSelection(options.since, options.until, after, options.only, redactor, taken)


def _own_key(folder: int, snapshot: ArchiveSnapshot, owner: int) -> bytes:
    try:
        with files.open_beneath(folder, layout.NAMESPACE_FILE, owner) as file:
            return key_from_namespace(os.read(file.fileno(), 4096))
    except OSError:
        raise UsageError(
            f"{snapshot.name} has no secret of its own to make pseudonyms with: give a --redact-key"
        ) from None


class WorkerMessage(msgspec.Struct, omit_defaults=True):
    """What the worker says: a name it wants opened, how far it is, its result, or why it has none."""

    name: str | None = None
    #: The number of bytes to come, and then of those that have gone.
    total: int | None = None
    gone: int | None = None
    result: Bundled | None = None
    error: str | None = None
    exit_code: int = Exit.CANNOT


def send(end: socket.socket, message: msgspec.Struct) -> None:
    """Sends a message as a line of JSON."""
    end.sendall(msgspec.json.encode(message) + b"\n")


def receive(end: socket.socket, kind: type[T]) -> Iterator[T]:
    """The messages that come in, until the other side has gone."""
    with end.makefile("rb") as lines:
        while (line := lines.readline(_LIMIT)).endswith(b"\n"):
            yield msgspec.json.decode(line, type=kind)
    if len(line) == _LIMIT:
        raise VmsonarError("bundling answered with far too much")


def main(descriptor: int) -> NoReturn:
    """The worker: works, answers and ends."""
    parent = socket.socket(fileno=descriptor)
    try:
        message = WorkerMessage(result=_follow_orders(parent))
    except VmsonarError as error:
        message = WorkerMessage(error=str(error), exit_code=error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message = WorkerMessage(error=f"{where}{error.strerror or error}")
    except BaseException as error:
        message = WorkerMessage(error=f"bundling failed: {error!r}")
    with suppress(OSError):
        send(parent, message)
    os._exit(0)


def _follow_orders(parent: socket.socket) -> Bundled:
    task = next(receive(parent, Task))
    # What will be needed is loaded now: without our rights it may not be found.
    if task.options.parquet:
        load_tables()
    if isinstance(task.delivery, ToUrl) and task.delivery.url.startswith("s3:"):
        s3.load()
    if task.owner is not None:
        become(*task.owner)
    signer = signer_through(*task.signer) if task.signer else None
    return work(task, signer, lambda name: _ask(parent, name), _SentProgress(parent))


def _ask(parent: socket.socket, name: str) -> int:
    send(parent, WorkerMessage(name=name))
    _, descriptors, _, _ = socket.recv_fds(parent, 16, 1)
    if not descriptors:
        raise VmsonarError("the output could not be opened")
    return descriptors[0]


class _SentProgress(Progress):
    """Progress that is shown by the process that started us."""

    def __init__(self, parent: socket.socket) -> None:
        super().__init__()
        self._parent = parent
        self._told = 0

    def expect(self, total: int, title: str | None = None) -> None:
        super().expect(total, title)
        self._told = 0
        send(self._parent, WorkerMessage(total=total))

    def advance(self, steps: int = 1) -> None:
        super().advance(steps)
        if abs(untold := self.done - self._told) >= _STEP:
            self._told = self.done
            send(self._parent, WorkerMessage(gone=untold))


if __name__ == "__main__":
    main(int(sys.argv[1]))
