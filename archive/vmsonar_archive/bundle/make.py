"""Makes a bundle of an archive: snapshot, plan, copy; the archive is only read, and only with its owner's rights."""

import hashlib
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vmsonar_archive import files
from vmsonar_archive.bundle.output import OutputFile, place_of, refuse_inside
from vmsonar_archive.bundle.plan import Plan, plan_whole
from vmsonar_archive.bundle.privileges import OpenOutput, must_drop, run_apart
from vmsonar_archive.bundle.snapshot import take_snapshot
from vmsonar_archive.bundle.write import Signer, Sink, write_bundle
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Finding, Severity
from vmsonar_archive.signer import SigningProcess

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
    made[0].commit()
    bundled.output = str(made[0].path)
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
    folder = files.open_root(archive)
    # Started now, while the key can be read: later we may have fewer rights.
    key = SigningProcess(options.sign) if options.sign else None
    signer = Signer(key.size, lambda content: key.sign(hashlib.sha512(content).digest())) if key else None
    try:
        status = os.fstat(folder)
        owner = (status.st_uid, status.st_gid) if must_drop(status.st_uid) else None
        if owner is None and not apart:
            return _make(folder, str(archive), deliver, signer, open_output)

        def work(ask: OpenOutput) -> bytes:
            return msgspec.json.encode(_make(folder, str(archive), deliver, signer, ask))

        return msgspec.json.decode(run_apart(owner, work, open_output), type=Bundled)
    finally:
        os.close(folder)
        if key is not None:
            key.close()


def _make(
    folder: int, name: str, deliver: Deliver, signer: Signer | None, open_output: OpenOutput
) -> Bundled:
    _hold_many_files()
    snapshot = take_snapshot(folder, name)
    try:
        return deliver(plan_whole(snapshot), signer, open_output)
    finally:
        snapshot.close()


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
