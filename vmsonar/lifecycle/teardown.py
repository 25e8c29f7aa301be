"""Brings what was recorded to safety, within a time: what waits first, then what no bundle has taken yet."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec
from vmsonar_archive.bundle.make import Bundled, Options
from vmsonar_archive.errors import Exit, UsageError, VmsonarError

from vmsonar.config_save import Save
from vmsonar.lifecycle.apart import OutOfTime, within
from vmsonar.lifecycle.deliver import bundle_to_folder, bundle_to_target, send_file
from vmsonar.lifecycle.target import Target, parse_target

_HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")
_CREDENTIAL = "host-key"
#: The part of the time after which sending is given up, so that there is time to write to the disk.
_SENDING_SHARE = 0.6


class Saved(msgspec.Struct, kw_only=True):
    """What became of it, for people and programs."""

    #: Where bundles went in this run, without secrets.
    delivered: list[str] = []
    #: Bundles on this machine's disk that still have to be sent.
    waiting: list[str] = []
    #: Whether records were also forwarded: all of them, not all, or not configured.
    forwarded: bool | None = None
    #: What went wrong, a sentence each.
    troubles: list[str] = []
    #: Whether the archive itself was found damaged on the way.
    damaged: bool = False

    @property
    def exit_code(self) -> Exit:
        if self.waiting or self.troubles or self.forwarded is False:
            return Exit.CANNOT
        return Exit.NO if self.damaged else Exit.OK


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be saved, where to, and how long that may take."""

    archive: Path
    save: Save
    seconds: float

    @property
    def target(self) -> Target | None:
        """Where bundles go from here; None where they stay."""
        if self.save.to is None or Path(self.save.to) == self.waiting:
            return None
        return parse_target(self.save.to)

    @property
    def waiting(self) -> Path:
        return Path(self.save.waiting)


def teardown(job: Job) -> Saved:
    """Saves everything; what cannot be sent in time is written to the disk and waits there."""
    end = time.monotonic() + job.seconds
    options = _options(job)
    saved = Saved()
    if job.target is not None:
        sent = _try(saved, job.seconds * _SENDING_SHARE, lambda: _send(job, options))
        _take_over(saved, sent)
    if job.target is None or saved.troubles:
        left = max(1.0, end - time.monotonic())
        kept = _try(saved, left, lambda: _keep(job, options))
        if job.target is None:
            _take_over(saved, kept)
    saved.waiting = [str(path) for path in waiting_bundles(job)] if job.target is not None else []
    return saved


def increment(job: Job) -> Saved:
    """Sends what waits and what is new; what cannot be sent stays in the archive for the next time."""
    saved = Saved()
    if job.target is None or not job.target.takes_many:
        return resume(job)
    options = _options(job)
    _take_over(saved, _try(saved, job.seconds, lambda: _send(job, options)))
    saved.waiting = [str(path) for path in waiting_bundles(job)]
    return saved


def resume(job: Job) -> Saved:
    """Sends only what waits."""
    saved = Saved()
    if job.target is None:
        return saved
    target = job.target
    _take_over(saved, _try(saved, job.seconds, lambda: _send_waiting(job, target)))
    saved.waiting = [str(path) for path in waiting_bundles(job)]
    return saved


def waiting_bundles(job: Job) -> list[Path]:
    """Bundles that wait to be sent, the oldest first."""
    found = [path for path in job.waiting.glob("*.tar") if path.is_file() and not path.is_symlink()]
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))


def _try(saved: Saved, seconds: float, work: Callable[[], Saved]) -> Saved | None:
    try:
        return within(seconds, work, Saved)
    except OutOfTime as error:
        saved.troubles.append(f"{error}: gave up")
    except VmsonarError as error:
        saved.troubles.append(str(error))
    return None


def _take_over(saved: Saved, part: Saved | None) -> None:
    if part is not None:
        saved.delivered += part.delivered
        saved.troubles += part.troubles
        saved.damaged |= part.damaged


def _send(job: Job, options: Options) -> Saved:
    """What waits, so that the order stays, and then the rest."""
    target = job.target
    assert target is not None
    saved = _send_waiting(job, target)
    if saved.troubles:
        return saved
    try:
        _take_over(saved, _told(bundle_to_target(job.archive, target, options)))
    except VmsonarError as error:
        saved.troubles.append(str(error))
    return saved


def _send_waiting(job: Job, target: Target) -> Saved:
    saved = Saved()
    for bundle in waiting_bundles(job):
        try:
            saved.delivered.append(send_file(bundle, job.archive, target))
        except VmsonarError as error:
            saved.troubles.append(str(error))
            break
        bundle.unlink()
    return saved


def _keep(job: Job, options: Options) -> Saved:
    """On this machine's disk: counted as taken, because from now on the bundle there is what has to be sent."""
    return _told(bundle_to_folder(job.archive, job.waiting, options))


def _told(bundled: Bundled) -> Saved:
    return Saved(delivered=[bundled.output] if bundled.output else [], damaged=not bundled.ok)


def _options(job: Job) -> Options:
    many = job.target is None or job.target.takes_many
    return Options(sign=signing_key(job.save.sign), increment=many)


def signing_key(sign: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The key that the configuration means; None where bundles are not signed."""
    if sign == "none":
        return None
    credentials = environment.get("CREDENTIALS_DIRECTORY")
    if sign == "auto":
        place = Path(credentials) / _CREDENTIAL if credentials else _HOST_KEY
        usable = os.access(place, os.R_OK) and place.stat().st_size > len("none\n")
        return place if usable and find_spec("cryptography") is not None else None
    if "/" in sign:
        return Path(sign)
    if not credentials:
        raise UsageError(
            f"save.sign: {sign} is not a path, and there are no systemd credentials: give a path"
        )
    return Path(credentials) / sign
