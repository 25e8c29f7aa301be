"""Delivers bundles: made and sent in one step, put into a folder, or sent from the disk."""

import os
from datetime import UTC, datetime, timedelta
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

from vmsonar_archive.bundle.make import Bundled, BundleOptions, bundle_into_folder, bundle_to_url
from vmsonar_archive.bundle.send import mint, s3
from vmsonar_archive.bundle.send.delivery import OutputFile, upload_to
from vmsonar_archive.bundle.send.mint import TryAgain
from vmsonar_archive.bundle.write import Sink
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.text import where_it_leads

from vmsonar.lifecycle.target import SaveTarget

#: The name that a check asks a URL for; nothing is put there.
NAME = "vmsonar-check.tar"
# A URL that expires sooner may not last to the end of an upload.
_SHORT = timedelta(minutes=1)
_CHUNK = 1024 * 1024


def bundle_to_target(archive: Path, target: SaveTarget, options: BundleOptions) -> Bundled:
    """Makes a bundle at its target; no second copy needs space."""
    identity, now = read_identity(archive), datetime.now(UTC)
    if target.is_folder:
        return bundle_into_folder(archive, target.folder(identity, now), options)
    return bundle_to_url(archive, target.url(identity, now), options=options)


def send_file(bundle: Path, archive: Path, target: SaveTarget) -> str:
    """Sends a bundle that waited on the disk; returns where it is, without secrets."""
    identity, now = read_identity(archive), datetime.now(UTC)
    if target.is_folder:
        return _copy(bundle, target.folder(identity, now))
    how = target.url(identity, now)
    if how.url.startswith("s3:"):
        return s3.put(how.url, bundle.stem, lambda sink: _stream(bundle, sink)).where
    size = bundle.stat().st_size
    return upload_to(how, bundle.name, size, lambda sink: _stream(bundle, sink)).put(how.pauses).where


def troubles_with(target: SaveTarget, archive: Path, now: datetime) -> list[str]:
    """Reasons why bundles cannot be delivered; empty if they can."""
    identity = read_identity(archive) if (archive / "archive.json").exists() else None
    try:
        place = mint.ask(target.mint(identity), NAME, 0, now)
    except (VmsonarError, TryAgain) as error:
        return [str(error)]
    left = place.expires - now if place.expires is not None else _SHORT
    if left < _SHORT:
        return [f"the URL for {where_it_leads(place.url)} expires in {left.total_seconds():.0f} s"]
    return []


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
        return files.sha256_of(file)
