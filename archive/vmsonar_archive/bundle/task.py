"""Bundles an archive: snapshot, plan, delivery; the archive itself is only read."""

import os
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from vmsonar_archive.bundle.increment import acknowledge, has_new, read_acknowledged, taken_up_to
from vmsonar_archive.bundle.plan import plan_whole, span_of
from vmsonar_archive.bundle.redact import Redactor, key_from_namespace
from vmsonar_archive.bundle.select import BundleSelection, plan_selected
from vmsonar_archive.bundle.send.delivery import Delivery, OpenOutput, deliver
from vmsonar_archive.bundle.snapshot import ArchiveSnapshot, take_snapshot
from vmsonar_archive.bundle.tables import add_tables
from vmsonar_archive.bundle.write import Bundled, Signer
from vmsonar_archive.format import layout
from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.records.units import Sensitivity
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import AnswerIsNo, UsageError
from vmsonar_archive.system.moments import covered_words, span_words
from vmsonar_archive.system.progress import Progress


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
