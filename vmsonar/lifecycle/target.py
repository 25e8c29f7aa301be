"""Where bundles go: a folder, a URL or S3, with the names of the archive, the node and the time filled in."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from vmsonar_archive.bundle.send import read_url
from vmsonar_archive.errors import UsageError
from vmsonar_archive.identity import ArchiveIdentity

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("archive", "node", "time")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
_STAMP = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Target:
    """One place as the configuration names it."""

    template: str

    @property
    def is_folder(self) -> bool:
        return not self.template.startswith(("https:", "s3:", "@"))

    @property
    def takes_many(self) -> bool:
        """Whether each bundle gets a name of its own there; a plain URL takes one bundle and no second."""
        if self.template.startswith("s3:"):
            return "{time}" in self.template or self.template.endswith("/")
        return self.is_folder or "{time}" in self.template

    def filled(self, identity: ArchiveIdentity, now: datetime) -> str:
        """The place itself; a URL in a file is read each time, so that somebody can renew it."""
        values = {
            "archive": _safe(identity.archive),
            "node": _safe(identity.hostname_short or identity.instance_id or identity.machine_id),
            # To the millisecond: several bundles may go out in one second.
            "time": f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z",
        }
        template = read_url(self.template) if self.template.startswith("@") else self.template
        return _PLACEHOLDER.sub(lambda match: values[match[1]], template)

    def folder(self, identity: ArchiveIdentity, now: datetime) -> Path:
        """The folder, made where only what the template fills in is missing."""
        place = Path(self.filled(identity, now))
        if not place.is_dir() and "{" in self.template:
            base = Path(self.template.split("{")[0] + "x").parent
            if base.is_dir():
                place.mkdir(parents=True, exist_ok=True)
        if not place.is_dir():
            raise UsageError(f"save.to: {place} is not a folder here: make it, or mount what belongs there")
        return place


def parse_target(text: str) -> Target:
    """Refuses what could never work, before it is needed."""
    unknown = [name for name in _PLACEHOLDER.findall(text) if name not in _KNOWN]
    if unknown:
        raise UsageError(
            f"save.to: {{{unknown[0]}}} is unknown: there are {{archive}}, {{node}} and {{time}}"
        )
    if text.startswith("http:") or (text.startswith("s3:") and not text.startswith("s3://")):
        raise UsageError("save.to: a bundle is sent by https:// or to s3://bucket/prefix/ only")
    if not text.startswith(("https://", "s3://", "@", "/")):
        raise UsageError(
            f"save.to: {text!r} is neither a folder's full path, nor https://, nor s3://, nor @FILE"
        )
    return Target(text)


def expiry(url: str) -> datetime | None:
    """When a signed URL ends: AWS and Google by their own parameters, older ones by Expires, Azure by se."""
    query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    readers: tuple[Callable[[dict[str, str]], datetime], ...] = (
        lambda fields: _after(fields["x-amz-date"], fields["x-amz-expires"]),
        lambda fields: _after(fields["x-goog-date"], fields["x-goog-expires"]),
        lambda fields: datetime.fromtimestamp(int(fields["expires"]), UTC),
        lambda fields: datetime.fromisoformat(fields["se"]),
    )
    for read in readers:
        try:
            found = read(query)
        except (KeyError, ValueError, OverflowError, OSError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _after(begin: str, seconds: str) -> datetime:
    return datetime.strptime(begin, _STAMP).replace(tzinfo=UTC) + timedelta(seconds=int(seconds))


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name).strip("-")[:63] or "node"
