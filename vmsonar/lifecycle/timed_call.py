"""A call into another process that can be ended: name resolution and hung mounts end in no other way."""

import os
import signal
import subprocess
from contextlib import suppress
from typing import TypeVar

import msgspec
from vmsonar_archive.system.errors import Exit, VmsonarError

T = TypeVar("T")


class OutOfTime(VmsonarError):
    """The call was not done in time."""


class CallFailed(VmsonarError):
    """The called process answered with an error, which is raised here."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = Exit(exit_code)


class CallFailure(msgspec.Struct):
    """An error as the answer of a call."""

    failure: str
    exit_code: int = Exit.CANNOT


def timed_call(seconds: float, command: list[str], request: bytes, kind: type[T]) -> T:
    """The command's answer to a request, both in JSON."""
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
        failed = msgspec.json.decode(answer, type=CallFailure)
        raise CallFailed(failed.failure, failed.exit_code)
    return msgspec.json.decode(answer, type=kind)


def answer_of(error: BaseException) -> CallFailure:
    """The error in one sentence, for the caller."""
    if isinstance(error, VmsonarError):
        return CallFailure(str(error), error.exit_code)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return CallFailure(f"{where}{error.strerror or error}")
    return CallFailure(repr(error))


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
