"""Where bundles go: a folder, a URL or S3, with the names of the archive, the node and the time filled in."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vmsonar_archive.bundle.make import read_url, to_url
from vmsonar_archive.bundle.send import mint
from vmsonar_archive.bundle.send.delivery import ToUrl
from vmsonar_archive.bundle.send.mint import Mint
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.system.errors import UsageError, VmsonarError

from vmsonar.forward.settings import read_secret

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("archive", "node", "time")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class SaveTarget:
    """One place as the configuration names it."""

    template: str
    #: The file with the token for an endpoint that mints URLs.
    token_file: str | None = None

    @property
    def is_folder(self) -> bool:
        return not self.template.startswith(("https:", "s3:", "@", mint.SCHEME))

    @property
    def is_minted(self) -> bool:
        """Whether an endpoint gives a fresh URL for each bundle."""
        return self.template.startswith(mint.SCHEME)

    @property
    def takes_many(self) -> bool:
        """Whether each bundle gets a name of its own there; a plain URL takes one bundle and no second."""
        if self.template.startswith("s3:"):
            return "{time}" in self.template or self.template.endswith("/")
        if self.template.startswith("@"):
            # A file that cannot be read now is told of when it is needed.
            try:
                return "{time}" in read_url(self.template)
            except VmsonarError:
                return False
        return self.is_folder or self.is_minted or "{time}" in self.template

    def url(self, identity: ArchiveIdentity, now: datetime) -> ToUrl:
        """How to send there."""
        filled = self.filled(identity, now)
        return to_url("", self.mint(identity)) if self.is_minted else to_url(filled)

    def mint(self, identity: ArchiveIdentity | None) -> Mint:
        """The endpoint, with the token as it is now; without an archive for a question that has none."""
        token = read_secret(self.token_file, "save.token_file") if self.token_file else None
        return Mint(
            url=mint.endpoint(self.template),
            token=token,
            archive=identity.archive if identity else "",
            node=_node(identity) if identity else "",
        )

    def filled(self, identity: ArchiveIdentity, now: datetime) -> str:
        """The place itself; a URL in a file is read each time, so that somebody can renew it."""
        values = {
            "archive": _safe(identity.archive),
            "node": _node(identity),
            # To the millisecond: several bundles may go out in one second.
            "time": f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z",
        }
        template = read_url(self.template) if self.template.startswith("@") else self.template
        _refuse_unknown(template)
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


def parse_target(text: str, token_file: str | None = None) -> SaveTarget:
    """Refuses what could never work, before it is needed."""
    _refuse_unknown(text)
    if text.startswith("http:") or (text.startswith("s3:") and not text.startswith("s3://")):
        raise UsageError("save.to: a bundle is sent by https:// or to s3://bucket/prefix/ only")
    if text.startswith(mint.SCHEME):
        _check_endpoint(text)
    elif not text.startswith(("https://", "s3://", "@", "/")):
        raise UsageError(
            f"save.to: {text!r} is neither a folder's full path, nor https://, s3://, mint+https:// or @FILE"
        )
    elif token_file is not None:
        raise UsageError("save.token_file goes with save.to: mint+https://… only: remove it")
    return SaveTarget(text, token_file)


def _refuse_unknown(template: str) -> None:
    unknown = [name for name in _PLACEHOLDER.findall(template) if name not in _KNOWN]
    if unknown:
        raise UsageError(
            f"save.to: {{{unknown[0]}}} is unknown: there are {{archive}}, {{node}} and {{time}}"
        )


def _check_endpoint(text: str) -> None:
    if _PLACEHOLDER.search(text):
        raise UsageError("save.to: the endpoint is told archive and node in the request: no {…} in its URL")
    try:
        mint.endpoint(text)
    except UsageError:
        raise UsageError("save.to: an endpoint that mints URLs is given as mint+https://host/path") from None


def _node(identity: ArchiveIdentity) -> str:
    return _safe(identity.hostname_short or identity.instance_id or identity.machine_id)


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name).strip("-")[:63] or "node"
