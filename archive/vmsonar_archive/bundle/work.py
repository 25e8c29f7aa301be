"""All that is done with an archive's content to bundle it: snapshot, plan, delivery; the archive is only read."""

import os
import resource
import tempfile
from pathlib import Path

import msgspec

from vmsonar_archive import files, layout
from vmsonar_archive.bundle.deliver import Delivery, OpenOutput, deliver
from vmsonar_archive.bundle.increment import acknowledge, read_acknowledged, taken_up_to
from vmsonar_archive.bundle.options import Bundled, Options, Progress
from vmsonar_archive.bundle.plan import plan_whole
from vmsonar_archive.bundle.redact import Redactor, key_from_namespace
from vmsonar_archive.bundle.select import Selection, plan_selected
from vmsonar_archive.bundle.snapshot import Snapshot, take_snapshot
from vmsonar_archive.bundle.tables import add_tables
from vmsonar_archive.bundle.write import Signer
from vmsonar_archive.errors import UsageError
from vmsonar_archive.findings import Code, Finding


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be bundled, how, and where to."""

    #: The archive's folder, open.
    folder: int
    name: str
    options: Options
    delivery: Delivery


def work(task: Task, signer: Signer | None, open_output: OpenOutput, progress: Progress) -> Bundled:
    """Does it here and now, with the rights that this process has."""
    _hold_many_files()
    options = task.options
    snapshot = take_snapshot(task.folder, task.name)
    try:
        selection = _selection(task.folder, snapshot, options)
        plan = plan_whole(snapshot) if selection.is_whole else plan_selected(snapshot, selection)
        if selection.after_seq is not None and not plan.has_samples:
            detail = f"no sample since record {selection.after_seq}: there is nothing to bundle"
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


def _selection(folder: int, snapshot: Snapshot, options: Options) -> Selection:
    """What is asked for, with what only the archive knows."""
    owner = os.fstat(folder).st_uid
    after = taken_up_to(snapshot, read_acknowledged(folder, owner)) if options.increment else None
    redactor = None
    if options.redact:
        redactor = Redactor(options.redact_key or _own_key(folder, snapshot, owner), options.redact)
    return Selection(options.since, options.until, after, options.only, redactor)


def _own_key(folder: int, snapshot: Snapshot, owner: int) -> bytes:
    try:
        with files.open_beneath(folder, layout.NAMESPACE_FILE, owner) as file:
            return key_from_namespace(os.read(file.fileno(), 4096))
    except OSError:
        raise UsageError(
            f"{snapshot.name} has no secret of its own to make pseudonyms with: give a --redact-key"
        ) from None


def _hold_many_files() -> None:
    """Every file is held open at once, so that the writer can go on meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
