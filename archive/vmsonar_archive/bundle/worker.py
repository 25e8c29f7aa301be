"""`python -m vmsonar_archive.bundle.worker DESCRIPTOR`: bundles with the rights of the archive's owner, as it is told.

It ends by os._exit: whatever an error still holds, such as an unfinished upload, is not tidied up.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import msgspec

from vmsonar_archive.bundle import channel, s3
from vmsonar_archive.bundle.channel import Message
from vmsonar_archive.bundle.deliver import ToUrl
from vmsonar_archive.bundle.options import Progress, no_progress
from vmsonar_archive.bundle.privileges import Orders
from vmsonar_archive.bundle.tables import load_tables
from vmsonar_archive.bundle.work import Task, work
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.signer import signer_through

#: Progress is told in steps of this many bytes.
_STEP = 4 * 1024 * 1024


def main(descriptor: int) -> NoReturn:
    """Works, answers and ends."""
    parent = socket.socket(fileno=descriptor)
    try:
        leave(parent, Message(result=_obey(parent)))
    except VmsonarError as error:
        leave(parent, Message(error=str(error), exit_code=error.exit_code))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        leave(parent, Message(error=f"{where}{error.strerror or error}"))
    except BaseException as error:
        leave(parent, Message(error=f"bundling failed: {error!r}"))


def leave(parent: socket.socket, message: Message) -> NoReturn:
    with suppress(OSError):
        channel.send(parent, msgspec.json.encode(message))
    os._exit(0)


def _obey(parent: socket.socket) -> bytes:
    orders = msgspec.json.decode(channel.receive(parent), type=Orders)
    _load(orders.task)
    if orders.owner is not None:
        _become(*orders.owner)
    signer = signer_through(*orders.signer) if orders.signer else None
    progress = _telling(parent) if orders.tells_progress else no_progress
    return msgspec.json.encode(work(orders.task, signer, lambda name: _ask(parent, name), progress))


def _load(task: Task) -> None:
    """Loads what will be needed, now: without our rights it may not be found."""
    if task.options.parquet:
        load_tables()
    if isinstance(task.delivery, ToUrl) and task.delivery.url.startswith("s3:"):
        s3.load()


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _ask(parent: socket.socket, name: str) -> int:
    channel.send(parent, msgspec.json.encode(Message(name=name)))
    _, descriptors, _, _ = socket.recv_fds(parent, 16, 1)
    if not descriptors:
        raise VmsonarError("the output could not be opened")
    return descriptors[0]


def _telling(parent: socket.socket) -> Progress:
    """Progress that the process shows that started us."""

    @contextmanager
    def progress(total: int) -> Iterator[Callable[[int], None]]:
        gone = 0

        def advance(done: int) -> None:
            nonlocal gone
            gone += done
            if abs(gone) >= _STEP:
                channel.send(parent, msgspec.json.encode(Message(gone=gone)))
                gone = 0

        channel.send(parent, msgspec.json.encode(Message(total=total)))
        yield advance

    return progress


if __name__ == "__main__":
    main(int(sys.argv[1]))
