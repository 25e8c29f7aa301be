"""Started as root, the work on somebody's archive is done as that somebody, by a worker (setresuid(2), unix(7)).

We keep our rights and do nothing with the archive's content: we open the output when the worker asks for it by
name, and give the finished file its name. The worker is a new program, not a fork: a fork of a process that has
other threads may wait for ever for what they held.
"""

import os
import socket
import subprocess
from contextlib import ExitStack

import msgspec

from vmsonar_archive.bundle import channel
from vmsonar_archive.bundle.channel import Message
from vmsonar_archive.bundle.deliver import FINISH, OpenOutput
from vmsonar_archive.bundle.names import is_bag_name
from vmsonar_archive.bundle.options import Bundled, Progress, no_progress
from vmsonar_archive.bundle.work import Task
from vmsonar_archive.errors import Exit, VmsonarError
from vmsonar_archive.interpreter import python
from vmsonar_archive.signer import SigningProcess


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """All that the worker is told."""

    task: Task
    #: User and group to become.
    owner: tuple[int, int] | None
    #: Where digests go and signatures come from, and how long these are.
    signer: tuple[int, int, int] | None
    tells_progress: bool


class WorkerFailed(VmsonarError):
    """What the worker answered with, told by us."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = Exit(exit_code)


def must_drop(owner: int) -> bool:
    """Whether we are root and the archive is not."""
    return os.geteuid() == 0 and owner != 0


def run_apart(
    owner: tuple[int, int] | None,
    task: Task,
    key: SigningProcess | None,
    open_output: OpenOutput,
    progress: Progress,
) -> Bundled:
    """Has the task done by a worker with only the owner's rights, or ours."""
    orders = Orders(
        task=task, owner=owner, signer=key.ends if key else None, tells_progress=progress is not no_progress
    )
    ours, theirs = channel.pair()
    passed = [theirs.fileno(), task.folder, *(orders.signer[:2] if orders.signer else ())]
    command = python("-m", "vmsonar_archive.bundle.worker", str(theirs.fileno()))
    with ours:
        with theirs:
            worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=passed)
        try:
            channel.send(ours, msgspec.json.encode(orders))
            return msgspec.json.decode(_serve(ours, open_output, progress), type=Bundled)
        except ConnectionError:
            raise _ended() from None
        finally:
            ours.close()
            worker.wait()


def _serve(ours: socket.socket, open_output: OpenOutput, progress: Progress) -> bytes:
    with ExitStack() as shown:
        while data := channel.receive(ours):
            message = msgspec.json.decode(data, type=Message)
            if message.error is not None:
                raise WorkerFailed(message.error, message.exit_code)
            if message.result is not None:
                return message.result
            if message.total is not None:
                advance = shown.enter_context(progress(message.total))
            elif message.gone is not None:
                advance(message.gone)
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
