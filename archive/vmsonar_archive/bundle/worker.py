"""Bundles with the rights of the archive's owner, in a process of its own where we are root (unix(7)).

`python -m vmsonar_archive.bundle.worker DESCRIPTOR` is that process. It ends by os._exit: whatever an error still
holds, such as an unfinished upload, is not tidied up.
"""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import NoReturn

import msgspec

from vmsonar_archive.bundle.send import s3
from vmsonar_archive.bundle.send.delivery import FINISH, OpenOutput, ToUrl
from vmsonar_archive.bundle.signer import SigningProcess, signer_through
from vmsonar_archive.bundle.tables import load_tables
from vmsonar_archive.bundle.task import Task, work
from vmsonar_archive.bundle.write import Bundled
from vmsonar_archive.format.bag import is_bag_name
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.system.rights import become

_LIMIT = 64 * 1024 * 1024
_PIECE = 65536
_END = b"\0"
#: Progress is sent in steps of this many bytes.
_STEP = 4 * 1024 * 1024


class WorkerMessage(msgspec.Struct, omit_defaults=True):
    """What the worker says: a name it wants opened, how far it is, its result, or why it has none."""

    name: str | None = None
    #: The number of bytes to come, and then of those that have gone.
    total: int | None = None
    gone: int | None = None
    result: bytes | None = None
    error: str | None = None
    exit_code: int = Exit.CANNOT


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """All that the worker needs to know."""

    task: Task
    #: User and group to become.
    owner: tuple[int, int] | None
    #: The descriptors that digests go to and signatures come from, and the length of a signature.
    signer: tuple[int, int, int] | None
    with_progress: bool


class WorkerFailed(VmsonarError):
    """The worker's error, raised again in the process that started it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = Exit(exit_code)


def run_worker(
    owner: tuple[int, int] | None,
    task: Task,
    key: SigningProcess | None,
    open_output: OpenOutput,
    progress: Progress | None,
) -> Bundled:
    """Has the task done by a worker with the owner's rights, or ours."""
    orders = Orders(
        task=task, owner=owner, signer=key.ends if key else None, with_progress=progress is not None
    )
    ours, theirs = pair()
    passed = [theirs.fileno(), task.folder, *(orders.signer[:2] if orders.signer else ())]
    command = python("-m", "vmsonar_archive.bundle.worker", str(theirs.fileno()))
    with ours:
        with theirs:
            worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=passed)
        try:
            send(ours, msgspec.json.encode(orders))
            return msgspec.json.decode(_serve(ours, open_output, progress or Progress()), type=Bundled)
        except ConnectionError:
            raise _ended() from None
        except KeyboardInterrupt:
            worker.kill()
            raise
        finally:
            ours.close()
            worker.wait()


def _serve(ours: socket.socket, open_output: OpenOutput, progress: Progress) -> bytes:
    while data := receive(ours):
        message = msgspec.json.decode(data, type=WorkerMessage)
        if message.error is not None:
            raise WorkerFailed(message.error, message.exit_code)
        if message.result is not None:
            return message.result
        if message.total is not None:
            progress.expect(message.total)
        elif message.gone is not None:
            progress.advance(message.gone)
        else:
            socket.send_fds(ours, [b"opened"], [open_output(_checked(message.name or FINISH))])
    raise _ended()


def _checked(name: str) -> str:
    """The worker reads what others wrote, and we open files with rights that it does not have."""
    if name != FINISH and not is_bag_name(name):
        raise VmsonarError(f"bundling asks for a file named {name!r}: that is no name of a bundle")
    return name


def _ended() -> VmsonarError:
    return VmsonarError("bundling ended without a result: look at the kernel's log for its end")


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
    return ours, theirs


def send(end: socket.socket, data: bytes) -> None:
    """One message in pieces of a size that any socket takes; a piece of its own ends it."""
    for begin in range(0, len(data), _PIECE):
        end.send(data[begin : begin + _PIECE])
    end.send(_END)


def receive(end: socket.socket) -> bytes:
    """One message; empty when the other side has gone."""
    parts: list[bytes] = []
    size = 0
    while (part := end.recv(_PIECE)) not in (b"", _END):
        parts.append(part)
        size += len(part)
        if size > _LIMIT:
            raise VmsonarError("bundling answered with far too much")
    return b"".join(parts)


def main(descriptor: int) -> NoReturn:
    """The worker: works, answers and ends."""
    parent = socket.socket(fileno=descriptor)
    try:
        _leave(parent, WorkerMessage(result=_follow_orders(parent)))
    except VmsonarError as error:
        _leave(parent, WorkerMessage(error=str(error), exit_code=error.exit_code))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _leave(parent, WorkerMessage(error=f"{where}{error.strerror or error}"))
    except BaseException as error:
        _leave(parent, WorkerMessage(error=f"bundling failed: {error!r}"))


def _leave(parent: socket.socket, message: WorkerMessage) -> NoReturn:
    with suppress(OSError):
        send(parent, msgspec.json.encode(message))
    os._exit(0)


def _follow_orders(parent: socket.socket) -> bytes:
    orders = msgspec.json.decode(receive(parent), type=Orders)
    _load(orders.task)
    if orders.owner is not None:
        become(*orders.owner)
    signer = signer_through(*orders.signer) if orders.signer else None
    progress = _SentProgress(parent) if orders.with_progress else Progress()
    return msgspec.json.encode(work(orders.task, signer, lambda name: _ask(parent, name), progress))


def _load(task: Task) -> None:
    """Loads what will be needed, now: without our rights it may not be found."""
    if task.options.parquet:
        load_tables()
    if isinstance(task.delivery, ToUrl) and task.delivery.url.startswith("s3:"):
        s3.load()


def _ask(parent: socket.socket, name: str) -> int:
    send(parent, msgspec.json.encode(WorkerMessage(name=name)))
    _, descriptors, _, _ = socket.recv_fds(parent, 16, 1)
    if not descriptors:
        raise VmsonarError("the output could not be opened")
    return descriptors[0]


class _SentProgress(Progress):
    """Progress that is shown by the process that started us."""

    def __init__(self, parent: socket.socket) -> None:
        super().__init__()
        self._parent = parent

    def expect(self, total: int, title: str | None = None) -> None:
        super().expect(total, title)
        send(self._parent, msgspec.json.encode(WorkerMessage(total=total)))

    def advance(self, steps: int = 1) -> None:
        super().advance(steps)
        if abs(self.done) >= _STEP:
            send(self._parent, msgspec.json.encode(WorkerMessage(gone=self.done)))
            self.done = 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
