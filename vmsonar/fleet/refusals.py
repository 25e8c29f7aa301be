"""What did not verify: set aside with the reason beside it while there is room, never served, dropped only by age."""

import os
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from math import inf
from pathlib import Path

import msgspec
from vmsonar_archive.read.findings import Finding
from vmsonar_archive.system import files

from vmsonar.config.shipping import Kept

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_FINDINGS = 100
_DAY = 86_400
_STAYS = "stays"
#: The fleet is at fault: when that is mended the bundle can be taken, so it stays where it is.
_OUR_FAULTS = ("untrusted", "broken_archive")


class Refusal(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why something was set aside: the JSON beside it."""

    time: datetime
    origin: str
    name: str
    bytes: int
    #: A stable word: not_a_bundle, damaged, untrusted, other_history, other_machine, only_some_kinds, bad_record,
    #: broken_archive, too_large.
    reason: str
    detail: str
    archive: str | None = None
    findings: list[Finding] = []
    #: Whether the file itself is here; else it stays where it came from.
    kept: bool = True


class Refusals:
    """The folder `refused`."""

    def __init__(self, folder: Path, kept: Kept) -> None:
        self._folder = folder
        self._max_bytes = inf if kept.max_bytes is None else int(kept.max_bytes)
        self._seconds = inf if kept.max_days is None else kept.max_days * _DAY

    def set_aside(self, path: Path, refusal: Refusal, *, keep: bool) -> Path:
        """Moves a file here, or copies it, unless it stays where it is; returns where its reason stands."""
        refusal.kept = refusal.reason not in _OUR_FAULTS and self._has_room(refusal.bytes)
        target = self._target(refusal)
        if refusal.kept:
            _bring(path, target, keep=keep)
        return self._write(target, refusal)

    def keep(self, content: bytes, refusal: Refusal) -> Path:
        """The same for what came without a file."""
        refusal.kept = self._has_room(refusal.bytes)
        target = self._target(refusal)
        if refusal.kept:
            files.write_whole(target, content)
        return self._write(target, refusal)

    def _has_room(self, size: int) -> bool:
        return sum(used for _, _, used in self._found()) + size <= self._max_bytes

    def _target(self, refusal: Refusal) -> Path:
        """What stays where it is and is refused again has one reason, the latest."""
        name = _UNSAFE.sub("-", refusal.name).strip(".-")[-80:] or "unnamed"
        when = f"{refusal.time:%Y%m%dT%H%M%SZ}" if refusal.kept else _STAYS
        told = (refusal.origin, refusal.name, refusal.detail, refusal.time if refusal.kept else None)
        digits = blake2b(msgspec.json.encode(told), digest_size=4).hexdigest()
        return self._folder / f"{when}-{digits}-{refusal.reason}-{name}"

    def _write(self, target: Path, refusal: Refusal) -> Path:
        refusal.findings = refusal.findings[:_MAX_FINDINGS]
        reason = target.with_name(f"{target.name}.json")
        files.write_whole(reason, msgspec.json.format(msgspec.json.encode(refusal)) + b"\n")
        self.prune(refusal.time)
        return reason

    def prune(self, now: datetime) -> None:
        """Removes what is too old, the reason after the file; for want of room only reasons of what is elsewhere."""
        found = self._found()
        used = sum(size for _, _, size in found)
        oldest = now.astimezone(UTC).timestamp() - self._seconds
        for modified, path, size in sorted(found):
            when, _, reason = f"{os.path.basename(path)}--".split("-")[:3]
            is_expired = modified < oldest and reason not in _OUR_FAULTS
            if is_expired or (when == _STAYS and used > self._max_bytes):
                with suppress(OSError):
                    os.unlink(path)
                used -= size

    def _found(self) -> list[tuple[float, str, int]]:
        """Time, path and size of each file."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, entry.path, status.st_size))
        return found


def _bring(path: Path, target: Path, *, keep: bool) -> None:
    with suppress(OSError):
        if not keep:
            path.rename(target)
            os.utime(target)
            files.fsync_folder(target.parent)
            return
    with path.open("rb") as source, files.AtomicFile(target) as sink:
        shutil.copyfileobj(source, sink, 1024 * 1024)
    if not keep:
        path.unlink(missing_ok=True)
