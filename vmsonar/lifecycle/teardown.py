"""Saves what was recorded within a time limit: waiting bundles first, then new records; one teardown at a time."""

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from vmsonar_archive.system.children import python, side_by_side
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.rights import work_as_owner
from vmsonar_archive.write.lock import holder

from vmsonar.config.shipping import Forward, Save
from vmsonar.forward.state import is_all_sent, read_status
from vmsonar.host.roots import SYSTEM_FORWARD_STATE, forward_state
from vmsonar.lifecycle.step import OutOfTime, Saved, TeardownStep, run_step, waiting_bundles
from vmsonar.lifecycle.target import SaveTarget, parse_target

# Between two attempts to get the lock.
_PAUSE = 0.1
_HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")
_CREDENTIAL = "host-key"
#: The part of the time after which sending is given up, so that there is time to write to the disk.
_SENDING_SHARE = 0.6
#: The part of the time for which another teardown of the same archive is waited for.
_WAITING_SHARE = 0.3
_Work = Literal["send", "resume", "keep"]
_LATE = "forwarding was not done in time"
_BUSY = "another teardown of this archive is still at work: wait for it, then run this again"


@dataclass(frozen=True, slots=True)
class SaveJob:
    """What to save, where to, and the time limit."""

    archive: Path
    save: Save
    seconds: float

    @property
    def target(self) -> SaveTarget | None:
        """Where bundles go; None if they stay on this machine."""
        if self.save.to is None or Path(self.save.to) == Path(self.save.waiting):
            return None
        return parse_target(self.save.to, self.save.token_file)

    def step(self, what: _Work) -> TeardownStep:
        key = signing_key(self.save.sign) if what != "resume" else None
        return TeardownStep(
            what=what,
            archive=str(self.archive),
            save=self.save,
            sign=str(key) if key else None,
            increment=self.target is None or self.target.takes_many,
        )


def teardown(job: SaveJob) -> Saved:
    """Saves everything; what cannot be sent in time is written to the disk and waits there."""
    return _save(job, "send", keep=True)


def increment(job: SaveJob) -> Saved:
    """Sends what waits and what is new; what cannot be sent stays in the archive for the next time."""
    return _save(job, "send" if job.target is not None and job.target.takes_many else "resume")


def resume(job: SaveJob) -> Saved:
    """Sends only what waits."""
    return _save(job, "resume")


def _save(job: SaveJob, what: _Work, *, keep: bool = False) -> Saved:
    """Does it within the time limit; with `keep`, what is not sent is written to the disk."""
    end = time.monotonic() + job.seconds
    saved, target = Saved(), job.target
    if target is None and not keep:
        return saved
    with teardown_lock(job.archive, job.seconds * _WAITING_SHARE) as is_ours:
        if not is_ours:
            saved.troubles.append(_BUSY)
        elif target is not None:
            left = end - time.monotonic()
            saved.add(_try(job.step(what), left * _SENDING_SHARE if keep else left))
        if keep and (target is None or saved.troubles):
            kept = _try(job.step("keep"), max(1.0, end - time.monotonic()))
            # What is kept for a target is not delivered: it waits.
            saved.add(kept if target is None else Saved(troubles=kept.troubles))
    if target is not None:
        saved.waiting = [str(path) for path in waiting_bundles(Path(job.save.waiting))]
    return saved


def _try(step: TeardownStep, seconds: float) -> Saved:
    try:
        return run_step(step, seconds)
    except OutOfTime as error:
        return Saved(troubles=[f"{error}: gave up"])
    except VmsonarError as error:
        return Saved(troubles=[str(error)])


@contextmanager
def teardown_lock(archive: Path, seconds: float) -> Iterator[bool]:
    """One teardown of an archive at a time: waits up to `seconds`; False where another one still holds the lock."""
    end = time.monotonic() + seconds
    with ExitStack() as held:
        is_ours = True  # an archive that cannot be opened is told of by whoever reads it
        with suppress(OSError):
            descriptor = os.open(archive, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            while not (is_ours := _try_lock(descriptor)) and time.monotonic() < end:
                time.sleep(_PAUSE)
        yield is_ours


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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


class Forwarding:
    """A last run of forwarding beside the teardown: starts at once; `tell` waits for its result."""

    def __init__(self, archive: Path, config: Path | None, forward: Forward, seconds: float) -> None:
        self._archive = archive
        self._began = datetime.now(UTC)
        self._end = time.monotonic() + seconds
        # The unit that tears down has state folders of its own; the cursor is in none of them.
        environment = {name: value for name, value in os.environ.items() if name != "STATE_DIRECTORY"}
        self._state = forward_state(forward.state, environment)
        if forward.state is None and SYSTEM_FORWARD_STATE.is_dir():
            self._state = SYSTEM_FORWARD_STATE
        environment["STATE_DIRECTORY"] = str(self._state)
        self._process: subprocess.Popen[bytes] | None = None
        if not holder(self._state):
            limit = f"{max(1, int(seconds * 0.8))}s"
            command = python(
                "-m", "vmsonar", "forward", "--once", "--timeout", limit, "--archive", str(archive)
            )
            if config is not None:
                command += ["--config", str(config)]
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )

    def tell(self, saved: Saved) -> None:
        """Waits, and adds the result."""
        why = self._wait()
        saved.forwarded = why is None
        status = read_status(self._state, self._archive)
        if status is not None:
            saved.undeliverable = status.counts.undeliverable
        if why is not None:
            saved.forward_trouble = (status and status.trouble) or why

    def _wait(self) -> str | None:
        """None when everything arrived, else the reason."""
        if self._process is None:
            # In a process of its own, because as root it takes on the rights of the archive's owner.
            asked = (self._state, self._archive, self._end - time.monotonic(), self._began)
            try:
                return None if next(side_by_side(sent_within, [asked], 1)) else _LATE
            except VmsonarError:
                return _LATE
        try:
            code = self._process.wait(max(0.1, self._end - time.monotonic()))
            return f"forwarding ended with exit code {code}" if code else None
        except subprocess.TimeoutExpired:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            # The cursor on the disk is right at any time.
            self._process.kill()
            self._process.wait()
            return _LATE


def sent_within(state: Path, archive: Path, seconds: float, began: datetime) -> bool:
    """Whether the running forwarder sends everything in time.

    Only a status written after `began` counts: an earlier one knows nothing of the last records.
    """
    work_as_owner([archive])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        status = read_status(state, archive)
        if status is not None and status.time >= began and is_all_sent(status):
            return True
        time.sleep(0.2)
    return False
