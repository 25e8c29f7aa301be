"""One step of a teardown, in a process of its own (`python -m vmsonar.lifecycle.step`) that can be ended.

Name resolution and hung mounts end in no other way.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from vmsonar_archive.bundle.make import Bundled, BundleOptions, bundle_into_folder
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError
from vmsonar_archive.system.rights import refuse_exchangeable

from vmsonar.config.shipping import Save
from vmsonar.lifecycle.target import SaveTarget, parse_target

T = TypeVar("T")


class Saved(msgspec.Struct, kw_only=True):
    """The result of a step, or of a whole teardown."""

    #: Where bundles went in this run, without secrets.
    delivered: list[str] = []
    #: Bundles on this machine's disk that still have to be sent.
    waiting: list[str] = []
    #: Whether records were also forwarded: all of them, not all, or not configured.
    forwarded: bool | None = None
    #: Why not all of them are forwarded.
    forward_trouble: str | None = None
    #: Messages that the receiver refused, while it took others; over all runs.
    undeliverable: int = 0
    #: What went wrong, a sentence each.
    troubles: list[str] = []
    #: Whether the archive itself was found damaged on the way.
    damaged: bool = False

    @property
    def exit_code(self) -> Exit:
        if self.waiting or self.troubles or self.forwarded is False:
            return Exit.CANNOT
        return Exit.NO if self.damaged else Exit.OK

    def add(self, part: "Saved") -> None:
        """Adds the result of a step."""
        self.delivered += part.delivered
        self.troubles += part.troubles
        self.damaged |= part.damaged


class TeardownStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step, with everything its process needs."""

    #: Send what waits and what is new; only what waits; write what is new to the disk; ask whether we could.
    what: Literal["send", "resume", "keep", "check"]
    archive: str
    save: Save
    #: The key that signs.
    sign: str | None = None
    #: Only what no bundle has taken yet.
    increment: bool = True

    @property
    def waiting(self) -> Path:
        return Path(self.save.waiting)

    @property
    def options(self) -> BundleOptions:
        return BundleOptions(sign=Path(self.sign) if self.sign else None, increment=self.increment)


def run_step(step: TeardownStep, seconds: float) -> Saved:
    """Does it in a process of its own, which is ended when its time is over."""
    return timed_call(seconds, python("-m", "vmsonar.lifecycle.step"), msgspec.json.encode(step), Saved)


class OutOfTime(VmsonarError):
    """The call was not done in time."""


class CallFailure(msgspec.Struct):
    """An error as the answer of a call."""

    failure: str
    exit_code: Exit = Exit.CANNOT


def timed_call(seconds: float, command: list[str], request: bytes, kind: type[T]) -> T:
    """The command's answer to a request, both in JSON; an error that it answers with is raised here."""
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
        error = VmsonarError(failed.failure)
        error.exit_code = failed.exit_code
        raise error
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


def waiting_bundles(folder: Path) -> list[Path]:
    """Bundles that wait to be sent, the oldest first."""
    found = [path for path in folder.glob("*.tar") if path.is_file() and not path.is_symlink()]
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))


def do(step: TeardownStep) -> Saved:
    """Does it here and now."""
    archive = Path(step.archive)
    if step.what != "check":
        refuse_exchangeable(step.waiting)
    if step.what == "keep":
        if not step.waiting.is_dir():
            raise UsageError(f"save.waiting: {step.waiting} is not a folder here: make it")
        # Counted as taken, because from now on the bundle there is what has to be sent.
        return _told(bundle_into_folder(archive, step.waiting, step.options))
    assert step.save.to is not None
    target = parse_target(step.save.to, step.save.token_file)
    if step.what == "check":
        return Saved(troubles=target.troubles(archive, datetime.now(UTC)))
    saved = _send_waiting(step, target)
    if step.what == "send" and not saved.troubles:
        try:
            saved.add(_told(target.bundle(archive, step.options)))
        except (VmsonarError, OSError) as error:
            saved.troubles.append(answer_of(error).failure)
    return saved


def _send_waiting(step: TeardownStep, target: SaveTarget) -> Saved:
    """The oldest first, so that the order stays."""
    saved = Saved()
    for bundle in waiting_bundles(step.waiting):
        try:
            saved.delivered.append(target.send(bundle, Path(step.archive)))
            bundle.unlink()
        except (VmsonarError, OSError) as error:
            saved.troubles.append(answer_of(error).failure)
            break
    return saved


def _told(bundled: Bundled) -> Saved:
    return Saved(delivered=[bundled.output] if bundled.output else [], damaged=not bundled.ok)


def main() -> int:
    try:
        answer = msgspec.json.encode(do(msgspec.json.decode(sys.stdin.buffer.read(), type=TeardownStep)))
    except BaseException as error:
        answer = msgspec.json.encode(answer_of(error))
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    # An unfinished upload that an error still holds would be published if it were tidied up.
    os._exit(0)


if __name__ == "__main__":
    main()
