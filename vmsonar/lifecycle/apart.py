"""Runs work in a process group of its own and ends it when its time is over: fork(2), killpg(3)."""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

import msgspec
from vmsonar_archive.errors import VmsonarError

T = TypeVar("T")


class OutOfTime(VmsonarError):
    """The work was still going on when its time was over."""


class Failure(msgspec.Struct):
    """Why there is no answer."""

    reason: str


def within(seconds: float, work: Callable[[], T], kind: type[T]) -> T:
    """What the work returns, or an error; name resolution and hung mounts cannot be interrupted otherwise."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _be_child(theirs, work)
    os.close(theirs)
    with suppress(OSError):  # whoever of the two comes first
        os.setpgid(child, child)
    try:
        answer = _read(ours, time.monotonic() + seconds)
    finally:
        os.close(ours)
        _end(child)
    if answer is None:
        raise OutOfTime(f"not done within {seconds:.0f} s")
    if not answer:
        raise VmsonarError("the work ended without an answer: look at the kernel's log for its end")
    if answer[:1] == b"!":
        raise VmsonarError(msgspec.json.decode(answer[1:], type=Failure).reason)
    return msgspec.json.decode(answer[1:], type=kind)


def _read(descriptor: int, deadline: float) -> bytes | None:
    """Everything up to the end; None when the time is over first."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def _end(child: int) -> None:
    """Ends the whole group; one that hangs in the kernel is left to it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.02)


def _be_child(descriptor: int, work: Callable[[], T]) -> NoReturn:
    """Answers and ends without running anything of the parent's."""
    try:
        os.setpgid(0, 0)
        answer = b"=" + msgspec.json.encode(work())
    except VmsonarError as error:
        answer = b"!" + msgspec.json.encode(Failure(str(error)))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        answer = b"!" + msgspec.json.encode(Failure(f"{where}{error.strerror or error}"))
    except BaseException as error:
        answer = b"!" + msgspec.json.encode(Failure(repr(error)))
    with suppress(OSError):
        while answer:
            answer = answer[os.write(descriptor, answer) :]
    os._exit(0)
