"""Started as root, the work on somebody's archive is done as that somebody, in a child (setresuid(2), unix(7)).

The parent keeps its rights and does nothing with the archive's content: it opens the output when the child asks
for it by name, and gives the finished file its name.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import msgspec

from vmsonar_archive.errors import Exit, VmsonarError

#: Given the bundle's name, the descriptor to write it to.
OpenOutput = Callable[[str], int]

_LIMIT = 64 * 1024 * 1024


class _Message(msgspec.Struct, omit_defaults=True):
    """What the child says: a name it wants opened, its result, or why it has none."""

    name: str | None = None
    result: bytes | None = None
    error: str | None = None
    exit_code: int = Exit.CANNOT


class ChildFailed(VmsonarError):
    """What the child answered with, told by the parent."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = Exit(exit_code)


def must_drop(owner: int) -> bool:
    """Whether we are root and the archive is not."""
    return os.geteuid() == 0 and owner != 0


def run_apart(
    owner: tuple[int, int] | None, work: Callable[[OpenOutput], bytes], open_output: OpenOutput
) -> bytes:
    """Runs the work in a child with only the owner's rights, or ours; returns what it returned."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
    child = os.fork()
    if child == 0:
        ours.close()
        _be_child(owner, work, theirs)
    theirs.close()
    try:
        return _serve(ours, open_output)
    finally:
        ours.close()
        os.waitpid(child, 0)


def _serve(ours: socket.socket, open_output: OpenOutput) -> bytes:
    while data := _receive(ours):
        message = msgspec.json.decode(data, type=_Message)
        if message.error is not None:
            raise ChildFailed(message.error, message.exit_code)
        if message.result is not None:
            return message.result
        descriptor = open_output(message.name or "")
        socket.send_fds(ours, [b"opened"], [descriptor])
    raise VmsonarError("bundling ended without a result: look at the kernel's log for its end")


def _send(theirs: socket.socket, message: _Message) -> None:
    """One message in pieces of a size that any socket takes; an empty piece ends it."""
    data = msgspec.json.encode(message)
    for begin in range(0, len(data), 65536):
        theirs.send(data[begin : begin + 65536])
    theirs.send(b"\0")


def _receive(ours: socket.socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while (part := ours.recv(65536)) not in (b"", b"\0"):
        parts.append(part)
        size += len(part)
        if size > _LIMIT:
            raise VmsonarError("bundling answered with far too much")
    return b"".join(parts)


def _be_child(
    owner: tuple[int, int] | None, work: Callable[[OpenOutput], bytes], theirs: socket.socket
) -> None:
    """Gives up every right, works, answers, and ends without running anything of the parent's."""
    try:
        if owner is not None:
            _become(*owner)
        _leave(theirs, _Message(result=work(lambda name: _ask(theirs, name))))
    except VmsonarError as error:
        _leave(theirs, _Message(error=str(error), exit_code=error.exit_code))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _leave(theirs, _Message(error=f"{where}{error.strerror or error}"))
    except BaseException as error:
        # A child must never return into the parent's code.
        _leave(theirs, _Message(error=f"bundling failed: {error!r}"))


def _leave(theirs: socket.socket, message: _Message) -> NoReturn:
    """Ends at once: whatever an error still holds, such as an unfinished upload, is not tidied up."""
    with suppress(OSError):
        _send(theirs, message)
    os._exit(0)


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _ask(theirs: socket.socket, name: str) -> int:
    _send(theirs, _Message(name=name))
    _, descriptors, _, _ = socket.recv_fds(theirs, 16, 1)
    if not descriptors:
        raise VmsonarError("the output could not be opened")
    return descriptors[0]
