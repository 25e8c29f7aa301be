"""One step of a teardown as a process that can be ended: `python -m vmsonar.lifecycle.step`, JSON in and out."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from vmsonar_archive.bundle.make import Bundled, Options, bundle_into_folder
from vmsonar_archive.errors import UsageError, VmsonarError

from vmsonar.config_save import Save
from vmsonar.lifecycle.apart import answer_of
from vmsonar.lifecycle.deliver import bundle_to_target, send_file
from vmsonar.lifecycle.endpoint import troubles_with
from vmsonar.lifecycle.saved import Saved
from vmsonar.lifecycle.target import Target, parse_target


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, with what."""

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
    def options(self) -> Options:
        return Options(sign=Path(self.sign) if self.sign else None, increment=self.increment)


def waiting_bundles(folder: Path) -> list[Path]:
    """Bundles that wait to be sent, the oldest first."""
    found = [path for path in folder.glob("*.tar") if path.is_file() and not path.is_symlink()]
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))


def do(step: Step) -> Saved:
    """Does it here and now."""
    archive = Path(step.archive)
    if step.what == "keep":
        if not step.waiting.is_dir():
            raise UsageError(f"save.waiting: {step.waiting} is not a folder here: make it")
        # Counted as taken, because from now on the bundle there is what has to be sent.
        return _told(bundle_into_folder(archive, step.waiting, step.options))
    assert step.save.to is not None
    target = parse_target(step.save.to, step.save.token_file)
    if step.what == "check":
        return Saved(troubles=troubles_with(target, archive, datetime.now(UTC)))
    saved = _send_waiting(step, target)
    if step.what == "send" and not saved.troubles:
        try:
            saved.add(_told(bundle_to_target(archive, target, step.options)))
        except (VmsonarError, OSError) as error:
            saved.troubles.append(answer_of(error).failure)
    return saved


def _send_waiting(step: Step, target: Target) -> Saved:
    """The oldest first, so that the order stays."""
    saved = Saved()
    for bundle in waiting_bundles(step.waiting):
        try:
            saved.delivered.append(send_file(bundle, Path(step.archive), target))
            bundle.unlink()
        except (VmsonarError, OSError) as error:
            saved.troubles.append(answer_of(error).failure)
            break
    return saved


def _told(bundled: Bundled) -> Saved:
    return Saved(delivered=[bundled.output] if bundled.output else [], damaged=not bundled.ok)


def main() -> int:
    try:
        answer = msgspec.json.encode(do(msgspec.json.decode(sys.stdin.buffer.read(), type=Step)))
    except BaseException as error:
        answer = msgspec.json.encode(answer_of(error))
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    # An unfinished upload that an error still holds would be published if it were tidied up.
    os._exit(0)


if __name__ == "__main__":
    main()
