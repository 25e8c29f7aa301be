"""Runs a command in a process group of its own and ends it when its time is over: setpgid(2), killpg(3)."""

import os
import signal
import subprocess
from contextlib import suppress
from typing import TypeVar

import msgspec
from vmsonar_archive.errors import Exit, VmsonarError

T = TypeVar("T")


class OutOfTime(VmsonarError):
    """The work was still going on when its time was over."""


class Failed(VmsonarError):
    """What the work answered with, told by us."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = Exit(exit_code)


class Failure(msgspec.Struct):
    """Why there is no answer."""

    failure: str
    exit_code: int = Exit.CANNOT


def within(seconds: float, command: list[str], request: bytes, kind: type[T]) -> T:
    """What the command answers to a request, both in JSON; name resolution and hung mounts end in no other way."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    try:
        answer, _ = process.communicate(request, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"not done within {seconds:.0f} s") from None
    finally:
        _end(process)
    if not answer:
        raise VmsonarError("the work ended without an answer: look at the kernel's log for its end")
    with suppress(msgspec.ValidationError):
        failed = msgspec.json.decode(answer, type=Failure)
        raise Failed(failed.failure, failed.exit_code)
    return msgspec.json.decode(answer, type=kind)


def answer_of(error: BaseException) -> Failure:
    """An error as an answer, in one sentence."""
    if isinstance(error, VmsonarError):
        return Failure(str(error), error.exit_code)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}")
    return Failure(repr(error))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the whole group; one that hangs in the kernel is left to it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.4)
