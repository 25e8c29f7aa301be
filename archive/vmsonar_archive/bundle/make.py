"""Makes a bundle of an archive, kept here or sent as it is made; root leaves the work to a worker."""

import dataclasses
import os
import socket
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

from vmsonar_archive.bundle.send import s3, upload
from vmsonar_archive.bundle.send.delivery import FINISH, Delivery, OpenOutput, OutputFile, ToDescriptor, ToUrl
from vmsonar_archive.bundle.send.mint import Mint
from vmsonar_archive.bundle.signer import SigningProcess
from vmsonar_archive.bundle.tables import load_tables
from vmsonar_archive.bundle.worker import (
    NO_OPTIONS,
    BundleOptions,
    Task,
    WorkerMessage,
    receive,
    send,
    work,
)
from vmsonar_archive.bundle.write import Bundled
from vmsonar_archive.format.bag import is_bag_name
from vmsonar_archive.system import files
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.system.rights import ROOT
from vmsonar_archive.system.web import check_url
from vmsonar_archive.write.outputs import OutputKind, guard

__all__ = [
    "NO_OPTIONS", "BundleOptions", "Bundled", "bundle_into_folder", "bundle_to_descriptor", "bundle_to_file",
    "bundle_to_url", "read_url", "run", "to_url",
]  # fmt: skip

_MAX_URL = 16 * 1024


class WorkerFailed(VmsonarError):
    """The worker's error, raised again in the process that started it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = Exit(exit_code)


def bundle_to_file(
    archive: Path,
    output: Path,
    progress: Progress | None = None,
    options: BundleOptions = NO_OPTIONS,
    replaces: OutputKind | None = None,
) -> Bundled:
    """Makes a bundle as a new file, or in a folder under its own name; it may replace what is of that kind."""
    return _to_file(archive, output, options, ToDescriptor(), progress, replaces)


def bundle_into_folder(archive: Path, folder: Path, options: BundleOptions) -> Bundled:
    """Makes a bundle in a folder and, once it has its name there, counts what is in it as taken."""
    return _to_file(archive, folder, options, ToDescriptor(finish=True), None)


def _to_file(
    archive: Path,
    output: Path,
    options: BundleOptions,
    delivery: ToDescriptor,
    progress: Progress | None,
    replaces: OutputKind | None = None,
) -> Bundled:
    made: list[OutputFile] = []

    def open_output(name: str) -> int:
        if name == FINISH:
            made[0].commit()
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        in_folder = delivery.finish or output.is_dir()
        place = files.beneath(output, f"{name}.tar") if in_folder else output
        guard(place, [archive], replaces, force=None)
        made.append(OutputFile(place, replaces=replaces is not None))
        if delivery.finish:
            _give_to_owner(made[0].descriptor, output)
        return made[0].descriptor

    try:
        bundled = run(archive, options, delivery, open_output, progress)
        if made and not delivery.finish:
            made[0].commit()
    finally:
        for file in made:
            file.abandon()
    bundled.output = str(made[0].path) if made else ""
    return bundled


def _give_to_owner(descriptor: int, folder: Path) -> None:
    """What root puts into the service's folder must be readable for the service."""
    if os.geteuid() == 0:
        status = folder.stat()
        os.fchown(descriptor, status.st_uid, status.st_gid)


def bundle_to_descriptor(
    archive: Path, descriptor: int, progress: Progress | None = None, options: BundleOptions = NO_OPTIONS
) -> Bundled:
    """Writes a bundle to an open file or pipe, such as standard output."""
    return run(archive, options, ToDescriptor(), lambda _name: descriptor, progress)


def bundle_to_url(
    archive: Path, how: ToUrl, progress: Progress | None = None, options: BundleOptions = NO_OPTIONS
) -> Bundled:
    """Sends a bundle."""
    return run(archive, options, how, _no_output, progress, in_worker=True)


def _no_output(_name: str) -> int:
    raise VmsonarError("an upload has no output file")


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
    with ExitStack() as stack:
        folder = files.open_root(archive, for_worker=True)
        stack.callback(os.close, folder)
        # Started now, while the key can be read: the worker may have fewer rights.
        key = stack.enter_context(closing(SigningProcess(options.sign))) if options.sign else None
        status = os.fstat(folder)
        task = Task(
            folder=folder,
            name=str(archive),
            options=dataclasses.replace(options, sign=None),
            delivery=delivery,
            owner=(status.st_uid, status.st_gid) if os.geteuid() == ROOT != status.st_uid else None,
            signer=key.ends if key else None,
        )
        if task.owner is None and not in_worker:
            return work(task, key.signer if key else None, open_output, progress or Progress())
        return _run_worker(task, open_output, progress or Progress())


def _run_worker(task: Task, open_output: OpenOutput, progress: Progress) -> Bundled:
    """Has the task done by a worker with the owner's rights, or ours."""
    ours, theirs = socket.socketpair()
    passed = [theirs.fileno(), task.folder, *(task.signer[:2] if task.signer else ())]
    command = python("-m", "vmsonar_archive.bundle.worker", str(theirs.fileno()))
    with ours:
        with theirs:
            worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=passed)
        try:
            send(ours, task)
            return _serve(ours, open_output, progress)
        except ConnectionError:
            raise _ended() from None
        except KeyboardInterrupt:
            worker.kill()
            raise
        finally:
            ours.close()
            worker.wait()


def _serve(ours: socket.socket, open_output: OpenOutput, progress: Progress) -> Bundled:
    for message in receive(ours, WorkerMessage):
        if message.error is not None:
            raise WorkerFailed(message.error, message.exit_code)
        if message.result is not None:
            return message.result
        if message.total is not None:
            progress.expect(message.total)
        elif message.gone is not None:
            progress.advance(message.gone)
        else:
            name = message.name or FINISH
            # The worker reads what others wrote, and we open files with rights that it does not have.
            if name != FINISH and not is_bag_name(name):
                raise VmsonarError(f"bundling asks for a file named {name!r}: that is no name of a bundle")
            socket.send_fds(ours, [b"opened"], [open_output(name)])
    raise _ended()


def _ended() -> VmsonarError:
    return VmsonarError("bundling ended without a result: look at the kernel's log for its end")


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
