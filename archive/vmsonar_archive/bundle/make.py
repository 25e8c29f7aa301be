"""Makes a bundle of an archive: snapshot, plan, copy; the archive is only read, and only with its owner's rights."""

import hashlib
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from vmsonar_archive import files, layout
from vmsonar_archive.bundle.increment import acknowledge, read_acknowledged, taken_up_to
from vmsonar_archive.bundle.output import OutputFile, place_of, refuse_inside
from vmsonar_archive.bundle.plan import Plan, plan_whole
from vmsonar_archive.bundle.privileges import OpenOutput, must_drop, run_apart
from vmsonar_archive.bundle.redact import Redactor, key_from_namespace
from vmsonar_archive.bundle.select import Selection, plan_selected
from vmsonar_archive.bundle.snapshot import Snapshot, take_snapshot
from vmsonar_archive.bundle.tables import add_tables, load_tables
from vmsonar_archive.bundle.write import Signer, Sink, write_bundle
from vmsonar_archive.errors import UsageError, VmsonarError
from vmsonar_archive.findings import Code, Finding, Severity
from vmsonar_archive.signer import SigningProcess
from vmsonar_archive.units import Sensitivity

#: Given the number of bytes to come, something that is told how many have gone.
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]


class Bundled(msgspec.Struct, kw_only=True):
    """What was made, for people and programs."""

    #: The bag's own name, which is the file's unless another was asked for.
    name: str
    output: str = ""
    bytes: int = 0
    files: int = 0
    head: str = ""
    #: After an upload: the hash of what went out, and whether the other side said that it has the same.
    sha256: str | None = None
    confirmed: bool | None = None
    findings: list[Finding] = []

    @property
    def ok(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


@contextmanager
def no_progress(_total: int) -> Iterator[Callable[[int], None]]:
    """For callers that show none."""
    yield lambda _bytes: None


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for beyond everything as it is."""

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


NO_OPTIONS = Options()

#: Brings a planned bundle to where it goes.
Deliver = Callable[[Plan, Signer | None, OpenOutput], Bundled]


def bundle_to_file(
    archive: Path, output: Path, progress: Progress = no_progress, options: Options = NO_OPTIONS
) -> Bundled:
    """Makes a bundle as a new file, or in a folder under its own name."""
    made: list[OutputFile] = []

    def open_output(name: str) -> int:
        place = place_of(output, name)
        refuse_inside(place, archive)
        made.append(OutputFile(place))
        return made[0].descriptor

    try:
        bundled = run(archive, options, _to_descriptor(progress), open_output)
    except BaseException:
        for file in made:
            file.abandon()
        raise
    for file in made:
        file.commit()
        bundled.output = str(file.path)
    return bundled


def bundle_to_descriptor(
    archive: Path, descriptor: int, progress: Progress = no_progress, options: Options = NO_OPTIONS
) -> Bundled:
    """Writes a bundle to an open file or pipe, such as standard output."""
    return run(archive, options, _to_descriptor(progress), lambda _name: descriptor)


def _to_descriptor(progress: Progress) -> Deliver:
    def deliver(plan: Plan, signer: Signer | None, ask: OpenOutput) -> Bundled:
        descriptor = ask(plan.folder)
        try:
            with progress(plan.payload_bytes) as advance:
                return write_plan(plan, lambda data: files.write_all(descriptor, data), signer, advance)
        except BrokenPipeError:
            raise VmsonarError("the reader of the bundle has gone: what it got is not whole") from None

    return deliver


def run(
    archive: Path, options: Options, deliver: Deliver, open_output: OpenOutput, *, apart: bool = False
) -> Bundled:
    """Does all that is done with the archive's content, with its owner's rights; apart: in a child in any case."""
    if options.parquet:
        load_tables()
    folder = files.open_root(archive)
    # Started now, while the key can be read: later we may have fewer rights.
    key = SigningProcess(options.sign) if options.sign else None
    signer = Signer(key.size, lambda content: key.sign(hashlib.sha512(content).digest())) if key else None
    try:
        status = os.fstat(folder)
        owner = (status.st_uid, status.st_gid) if must_drop(status.st_uid) else None
        if owner is None and not apart:
            return _make(folder, str(archive), options, deliver, signer, open_output)

        def work(ask: OpenOutput) -> bytes:
            return msgspec.json.encode(_make(folder, str(archive), options, deliver, signer, ask))

        return msgspec.json.decode(run_apart(owner, work, open_output), type=Bundled)
    finally:
        os.close(folder)
        if key is not None:
            key.close()


def _make(
    folder: int,
    name: str,
    options: Options,
    deliver: Deliver,
    signer: Signer | None,
    open_output: OpenOutput,
) -> Bundled:
    _hold_many_files()
    snapshot = take_snapshot(folder, name)
    try:
        selection = _selection(folder, snapshot, options)
        plan = plan_whole(snapshot) if selection.is_whole else plan_selected(snapshot, selection)
        if selection.after_seq is not None and not plan.has_samples:
            detail = f"no sample since record {selection.after_seq}: there is nothing to bundle"
            note = Finding.of(Code.UP_TO_DATE, "", detail)
            return Bundled(name=plan.folder, head=plan.record.head, findings=[*plan.findings, note])
        with tempfile.TemporaryDirectory(prefix="vmsonar-") as tables:
            if options.parquet:
                plan = add_tables(plan, Path(tables))
            bundled = deliver(plan, signer, open_output)
        if options.increment and bundled.confirmed and bundled.sha256:
            acknowledge(folder, snapshot, bundled.name, bundled.sha256)
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


def write_plan(plan: Plan, sink: Sink, signer: Signer | None, advance: Callable[[int], None]) -> Bundled:
    """Sends a planned bundle to a sink; can be repeated, and gives the same bytes."""
    size = 0

    def count(data: bytes) -> None:
        nonlocal size
        sink(data)
        size += len(data)

    written = write_bundle(plan, count, signer, advance)
    return Bundled(
        name=plan.folder,
        bytes=size,
        files=len(plan.items),
        head=plan.record.head,
        findings=[*plan.findings, *written.findings],
    )


def _hold_many_files() -> None:
    """Every file is held open at once, so that the writer can go on meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
