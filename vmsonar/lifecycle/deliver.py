"""Brings bundles to where they go: made and sent in one step, put into a folder, or sent from the disk."""

import hashlib
import os
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

from vmsonar_archive import files
from vmsonar_archive.bundle import s3, upload
from vmsonar_archive.bundle.make import Bundled, Options, run, write_plan
from vmsonar_archive.bundle.output import OutputFile, place_of, refuse_inside
from vmsonar_archive.bundle.plan import Plan
from vmsonar_archive.bundle.privileges import OpenOutput
from vmsonar_archive.bundle.send import bundle_to_url
from vmsonar_archive.bundle.upload import Digests
from vmsonar_archive.bundle.write import Signer, Sink
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.identity import read_identity

from vmsonar.lifecycle.target import Target

_CHUNK = 1024 * 1024
_FINISH = ""


def bundle_to_target(archive: Path, target: Target, options: Options) -> Bundled:
    """Makes a bundle at its target; no second copy needs space."""
    identity, now = read_identity(archive), datetime.now(UTC)
    if target.is_folder:
        return bundle_to_folder(archive, target.folder(identity, now), options)
    return bundle_to_url(archive, target.filled(identity, now), options=options)


def bundle_to_folder(archive: Path, folder: Path, options: Options) -> Bundled:
    """Makes a bundle in a folder and, once it has its name there, counts what is in it as taken."""
    open_files: list[OutputFile] = []
    made: list[Path] = []

    def open_output(name: str) -> int:
        if name == _FINISH:
            file = open_files.pop()
            file.commit()
            made.append(file.path)
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        place = place_of(folder, name)
        refuse_inside(place, archive)
        open_files.append(OutputFile(place))
        _give_to_owner(open_files[0].descriptor, folder)
        return open_files[0].descriptor

    try:
        bundled = run(archive, options, _into_folder, open_output)
    finally:
        for file in open_files:
            file.abandon()
    bundled.output = str(made[0]) if made else ""
    return bundled


def _give_to_owner(descriptor: int, folder: Path) -> None:
    """What root puts into the service's folder must be readable for the service."""
    if os.geteuid() == 0:
        status = folder.stat()
        os.fchown(descriptor, status.st_uid, status.st_gid)


def _into_folder(plan: Plan, signer: Signer | None, ask: OpenOutput) -> Bundled:
    descriptor = ask(plan.folder)
    digests = Digests(lambda data: files.write_all(descriptor, data))
    bundled = write_plan(plan, digests.send, signer, lambda _bytes: None)
    os.fsync(descriptor)
    os.close(ask(_FINISH))
    bundled.sha256, bundled.confirmed = digests.sha256.hexdigest(), True
    return bundled


def send_file(bundle: Path, archive: Path, target: Target) -> str:
    """Sends a bundle that waited on the disk; returns where it is, without secrets."""
    identity, now = read_identity(archive), datetime.now(UTC)
    if target.is_folder:
        return _copy(bundle, target.folder(identity, now))
    url = target.filled(identity, now)
    if url.startswith("s3:"):
        s3.put(url, bundle.stem, lambda sink: _stream(bundle, sink))
        return f"s3://{s3.object_path(url, bundle.stem)}"
    upload.put(url, bundle.stat().st_size, lambda sink: _stream(bundle, sink))
    return upload.shown(url)


def _stream(bundle: Path, sink: Sink) -> None:
    with _open(bundle) as file:
        while chunk := file.read(_CHUNK):
            sink(chunk)


def _open(bundle: Path) -> BufferedReader:
    """A plain file and no link: the folder belongs to an unprivileged user."""
    descriptor = os.open(bundle, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise VmsonarError(f"{bundle} is not a plain file: it is not sent")
    return os.fdopen(descriptor, "rb")


def _copy(bundle: Path, folder: Path) -> str:
    place = folder / bundle.name
    if place.is_file():
        if _sha256(place) == _sha256(bundle):
            return str(place)
        raise VmsonarError(f"{place} exists and is another bundle: remove one of the two")
    output = OutputFile(place)
    try:
        _stream(bundle, lambda data: files.write_all(output.descriptor, data))
    except BaseException:
        output.abandon()
        raise
    output.commit()
    return str(place)


def _sha256(path: Path) -> str:
    with _open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
