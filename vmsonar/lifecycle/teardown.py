"""Brings what was recorded to safety, within a time: what waits first, then what no bundle has taken yet."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from vmsonar_archive.errors import UsageError, VmsonarError
from vmsonar_archive.interpreter import python

from vmsonar.config_save import Save
from vmsonar.lifecycle.apart import OutOfTime, within
from vmsonar.lifecycle.saved import Saved
from vmsonar.lifecycle.step import Step, waiting_bundles
from vmsonar.lifecycle.target import Target, parse_target
from vmsonar.lifecycle.turn import Turn

_HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")
_CREDENTIAL = "host-key"
#: The part of the time after which sending is given up, so that there is time to write to the disk.
_SENDING_SHARE = 0.6
#: The part of the time for which another teardown of the same archive is waited for.
_WAITING_SHARE = 0.3
_BUSY = "another teardown of this archive is still at work: wait for it, then run this again"


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
        return parse_target(self.save.to, self.save.token_file)

    @property
    def waiting(self) -> Path:
        return Path(self.save.waiting)

    def step(self, what: Literal["send", "resume", "keep"]) -> Step:
        key = signing_key(self.save.sign) if what != "resume" else None
        return Step(
            what=what,
            archive=str(self.archive),
            save=self.save,
            sign=str(key) if key else None,
            increment=self.target is None or self.target.takes_many,
        )


def teardown(job: Job) -> Saved:
    """Saves everything; what cannot be sent in time is written to the disk and waits there."""
    end = time.monotonic() + job.seconds
    saved = Saved()
    with Turn(job.archive, job.seconds * _WAITING_SHARE) as turn:
        if turn.taken:
            saved.troubles.append(_BUSY)
        elif job.target is not None:
            saved.add(_try(saved, job.step("send"), (end - time.monotonic()) * _SENDING_SHARE))
        if job.target is None or saved.troubles:
            kept = _try(saved, job.step("keep"), max(1.0, end - time.monotonic()))
            if job.target is None:
                saved.add(kept)
    return _with_waiting(saved, job)


def increment(job: Job) -> Saved:
    """Sends what waits and what is new; what cannot be sent stays in the archive for the next time."""
    if job.target is None or not job.target.takes_many:
        return resume(job)
    return _send(job, job.step("send"))


def resume(job: Job) -> Saved:
    """Sends only what waits."""
    return Saved() if job.target is None else _send(job, job.step("resume"))


def _send(job: Job, step: Step) -> Saved:
    end = time.monotonic() + job.seconds
    saved = Saved()
    with Turn(job.archive, job.seconds * _WAITING_SHARE) as turn:
        if turn.taken:
            saved.troubles.append(_BUSY)
        else:
            saved.add(_try(saved, step, end - time.monotonic()))
    return _with_waiting(saved, job)


def _with_waiting(saved: Saved, job: Job) -> Saved:
    if job.target is not None:
        saved.waiting = [str(path) for path in waiting_bundles(job.waiting)]
    return saved


def _try(saved: Saved, step: Step, seconds: float) -> Saved | None:
    try:
        return within(seconds, python("-m", "vmsonar.lifecycle.step"), msgspec.json.encode(step), Saved)
    except OutOfTime as error:
        saved.troubles.append(f"{error}: gave up")
    except VmsonarError as error:
        saved.troubles.append(str(error))
    return None


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
