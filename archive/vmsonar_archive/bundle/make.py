"""Makes a bundle of an archive: here, or by a worker that has only the rights of the archive's owner."""

import dataclasses
import os
from pathlib import Path

from vmsonar_archive import files
from vmsonar_archive.bundle.deliver import FINISH, Delivery, IntoFolder, OpenOutput, ToDescriptor
from vmsonar_archive.bundle.options import NO_OPTIONS, Bundled, Options, Progress, no_progress
from vmsonar_archive.bundle.output import OutputFile, place_of, refuse_inside
from vmsonar_archive.bundle.privileges import must_drop, run_apart
from vmsonar_archive.bundle.tables import load_tables
from vmsonar_archive.bundle.work import Task, work
from vmsonar_archive.signer import SigningProcess

__all__ = [
    "NO_OPTIONS", "Bundled", "Options", "Progress", "bundle_into_folder", "bundle_to_descriptor",
    "bundle_to_file", "no_progress", "run",
]  # fmt: skip


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
    archive: Path, descriptor: int, progress: Progress = no_progress, options: Options = NO_OPTIONS
) -> Bundled:
    """Writes a bundle to an open file or pipe, such as standard output."""
    return run(archive, options, ToDescriptor(), lambda _name: descriptor, progress)


def bundle_into_folder(archive: Path, folder: Path, options: Options) -> Bundled:
    """Makes a bundle in a folder and, once it has its name there, counts what is in it as taken."""
    open_files: list[OutputFile] = []
    made: list[Path] = []

    def open_output(name: str) -> int:
        if name == FINISH:
            file = open_files.pop()
            file.commit()
            made.append(file.path)
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        place = folder / f"{name}.tar"
        open_files.append(OutputFile(place))
        refuse_inside(place, archive)
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
    options: Options,
    delivery: Delivery,
    open_output: OpenOutput,
    progress: Progress = no_progress,
    *,
    apart: bool = False,
) -> Bundled:
    """Has it done with the rights of the archive's owner; apart: by a worker in any case."""
    if options.parquet:
        load_tables()
    folder = files.open_root(archive)
    # Started now, while the key can be read: the worker may have fewer rights.
    key = SigningProcess(options.sign) if options.sign else None
    try:
        status = os.fstat(folder)
        owner = (status.st_uid, status.st_gid) if must_drop(status.st_uid) else None
        known = dataclasses.replace(options, sign=None)
        task = Task(folder=folder, name=str(archive), options=known, delivery=delivery)
        if owner is None and not apart:
            return work(task, key.signer if key else None, open_output, progress)
        return run_apart(owner, task, key, open_output, progress)
    finally:
        os.close(folder)
        if key is not None:
            key.close()
