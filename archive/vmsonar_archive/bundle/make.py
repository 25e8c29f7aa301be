"""Makes a bundle of an archive, kept here or sent as it is made; root leaves the work to a worker."""

import dataclasses
import os
from pathlib import Path

from vmsonar_archive.bundle.send import s3, upload
from vmsonar_archive.bundle.send.delivery import FINISH, Delivery, IntoFolder, OpenOutput, ToDescriptor, ToUrl
from vmsonar_archive.bundle.send.mint import Mint
from vmsonar_archive.bundle.send.output import OutputFile, place_of
from vmsonar_archive.bundle.signer import SigningProcess
from vmsonar_archive.bundle.tables import load_tables
from vmsonar_archive.bundle.task import NO_OPTIONS, BundleOptions, Task, work
from vmsonar_archive.bundle.worker import run_worker
from vmsonar_archive.bundle.write import Bundled
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.system.rights import ROOT
from vmsonar_archive.system.web import check_url
from vmsonar_archive.write.outputs import guard

__all__ = [
    "NO_OPTIONS", "BundleOptions", "Bundled", "bundle_into_folder", "bundle_to_descriptor", "bundle_to_file",
    "bundle_to_url", "read_url", "run", "to_url",
]  # fmt: skip

_MAX_URL = 16 * 1024


def bundle_to_file(
    archive: Path, output: Path, progress: Progress | None = None, options: BundleOptions = NO_OPTIONS
) -> Bundled:
    """Makes a bundle as a new file, or in a folder under its own name."""
    made: list[OutputFile] = []

    def open_output(name: str) -> int:
        place = place_of(output, name)
        guard(place, [archive])
        made.append(OutputFile(place))
        return made[0].descriptor

    try:
        bundled = run(archive, options, ToDescriptor(), open_output, progress)
    except BaseException:
        for file in made:
            file.abandon()
        raise
    for file in made:
        file.commit()
        bundled.output = str(file.path)
    return bundled


def bundle_to_descriptor(
    archive: Path, descriptor: int, progress: Progress | None = None, options: BundleOptions = NO_OPTIONS
) -> Bundled:
    """Writes a bundle to an open file or pipe, such as standard output."""
    return run(archive, options, ToDescriptor(), lambda _name: descriptor, progress)


def bundle_into_folder(archive: Path, folder: Path, options: BundleOptions) -> Bundled:
    """Makes a bundle in a folder and, once it has its name there, counts what is in it as taken."""
    open_files: list[OutputFile] = []
    made: list[Path] = []

    def open_output(name: str) -> int:
        if name == FINISH:
            file = open_files.pop()
            file.commit()
            made.append(file.path)
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        place = files.beneath(folder, f"{name}.tar")
        guard(place, [archive])
        open_files.append(OutputFile(place))
        _give_to_owner(open_files[0].descriptor, folder)
        return open_files[0].descriptor

    try:
        bundled = run(archive, options, IntoFolder(), open_output)
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


def run(
    archive: Path,
    options: BundleOptions,
    delivery: Delivery,
    open_output: OpenOutput,
    progress: Progress | None = None,
    *,
    in_worker: bool = False,
) -> Bundled:
    """Bundles with the rights of the archive's owner: by a worker where we are root, or where that is asked for."""
    if options.parquet:
        load_tables()
    folder = files.open_root(archive, for_worker=True)
    # Started now, while the key can be read: the worker may have fewer rights.
    key = SigningProcess(options.sign) if options.sign else None
    try:
        status = os.fstat(folder)
        owner = (status.st_uid, status.st_gid) if os.geteuid() == ROOT != status.st_uid else None
        known = dataclasses.replace(options, sign=None)
        task = Task(folder=folder, name=str(archive), options=known, delivery=delivery)
        if owner is None and not in_worker:
            return work(task, key.signer if key else None, open_output, progress or Progress())
        return run_worker(owner, task, key, open_output, progress)
    finally:
        os.close(folder)
        if key is not None:
            key.close()


def read_url(output: str) -> str:
    """The URL itself, or the one in a file: command lines are seen by everybody on the machine."""
    if not output.startswith("@"):
        return output
    try:
        return Path(output[1:]).read_text()[:_MAX_URL].strip()
    except (OSError, UnicodeDecodeError):
        raise VmsonarError(f"cannot read a URL from {output[1:]}") from None


def to_url(url: str, mint: Mint | None = None) -> ToUrl:
    """How to send to https:// (signed for PUT), s3://, or wherever an endpoint says; refuses what cannot work."""
    if mint is not None:
        return ToUrl(mint=mint, pauses=upload.PAUSES)
    if not url.startswith("s3:"):
        check_url(url)
    elif not url.startswith("s3://"):
        raise UsageError("an S3 object is given as s3://bucket/key")
    else:
        s3.load()
    return ToUrl(url=url, pauses=upload.PAUSES)


def bundle_to_url(
    archive: Path, how: ToUrl, progress: Progress | None = None, options: BundleOptions = NO_OPTIONS
) -> Bundled:
    """Sends a bundle."""
    return run(archive, options, how, _no_output, progress, in_worker=True)


def _no_output(_name: str) -> int:
    raise VmsonarError("an upload has no output file")
