"""Where bundles go, and how: a folder, a URL or S3, with the names of the archive, the node and the time filled in."""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

from vmsonar_archive.bundle.make import (
    Bundled,
    BundleOptions,
    bundle_into_folder,
    bundle_to_url,
    read_url,
    to_url,
)
from vmsonar_archive.bundle.send import mint, s3
from vmsonar_archive.bundle.send.delivery import OutputFile, ToUrl, upload_to
from vmsonar_archive.bundle.send.mint import Mint, TryAgain
from vmsonar_archive.bundle.write import Sink
from vmsonar_archive.format.identity import ArchiveIdentity, read_identity
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.text import where_it_leads

from vmsonar.forward.settings import read_secret

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("archive", "node", "time")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
#: The name that a check asks a URL for; nothing is put there.
_CHECK_NAME = "vmsonar-check.tar"
# A URL that expires sooner may not last to the end of an upload.
_SHORT = timedelta(minutes=1)
_CHUNK = 1024 * 1024


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

    @property
    def fixed_folder(self) -> Path:
        """The folder, without the names in it that the template fills in."""
        fixed, brace, _ = self.template.partition("{")
        return Path(fixed + "x").parent if brace else Path(fixed)

    def bundle(self, archive: Path, options: BundleOptions) -> Bundled:
        """Makes a bundle there; no second copy needs space."""
        identity, now = read_identity(archive), datetime.now(UTC)
        if self.is_folder:
            return bundle_into_folder(archive, self._folder(identity, now), options)
        return bundle_to_url(archive, self._url(identity, now), options=options)

    def send(self, bundle: Path, archive: Path) -> str:
        """Sends a bundle that waited on the disk; returns where it is, without secrets."""
        identity, now = read_identity(archive), datetime.now(UTC)
        if self.is_folder:
            return _copy(bundle, self._folder(identity, now))
        how = self._url(identity, now)
        if how.url.startswith("s3:"):
            return s3.put(how.url, bundle.stem, partial(_stream, bundle)).where
        upload = upload_to(how, bundle.name, bundle.stat().st_size, partial(_stream, bundle))
        return upload.put(how.pauses).where

    def troubles(self, archive: Path, now: datetime) -> list[str]:
        """Reasons why the endpoint gives no URL for a bundle; empty if it does."""
        identity = read_identity(archive) if (archive / "archive.json").exists() else None
        try:
            place = mint.ask(self._mint(identity), _CHECK_NAME, 0, now)
        except (VmsonarError, TryAgain) as error:
            return [str(error)]
        left = place.expires - now if place.expires is not None else _SHORT
        if left < _SHORT:
            return [f"the URL for {where_it_leads(place.url)} expires in {left.total_seconds():.0f} s"]
        return []

    def _url(self, identity: ArchiveIdentity, now: datetime) -> ToUrl:
        if self.is_minted:
            return to_url("", self._mint(identity))
        return to_url(self._filled(identity, now))

    def _mint(self, identity: ArchiveIdentity | None) -> Mint:
        """The endpoint, with the token as it is now; without an archive for a question that has none."""
        return Mint(
            url=mint.endpoint(self.template),
            token=read_secret(self.token_file, "save.token_file") if self.token_file else None,
            archive=identity.archive if identity else "",
            node=_node(identity) if identity else "",
        )

    def _filled(self, identity: ArchiveIdentity, now: datetime) -> str:
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

    def _folder(self, identity: ArchiveIdentity, now: datetime) -> Path:
        """The folder, made where only what the template fills in is missing."""
        place = Path(self._filled(identity, now))
        if "{" in self.template and self.fixed_folder.is_dir():
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
        if _PLACEHOLDER.search(text):
            raise UsageError(
                "save.to: the endpoint is told archive and node in the request: no {…} in its URL"
            )
        try:
            mint.endpoint(text)
        except UsageError:
            said = "save.to: an endpoint that mints URLs is given as mint+https://host/path"
            raise UsageError(said) from None
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


def _node(identity: ArchiveIdentity) -> str:
    return _safe(identity.hostname_short or identity.instance_id or identity.machine_id)


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name).strip("-")[:63] or "node"


def _stream(bundle: Path, sink: Sink) -> None:
    with _open(bundle) as file:
        while chunk := file.read(_CHUNK):
            sink(chunk)


def _open(bundle: Path) -> BufferedReader:
    """A plain file and no link: the folder belongs to an unprivileged user."""
    descriptor = os.open(bundle, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise VmsonarError(f"{bundle} is not a plain file: it is not sent")
    return os.fdopen(descriptor, "rb")


def _copy(bundle: Path, folder: Path) -> str:
    place = folder / bundle.name
    if place.is_file():
        with _open(place) as there, _open(bundle) as ours:
            if files.sha256_of(there) == files.sha256_of(ours):
                return str(place)
        raise VmsonarError(f"{place} exists and is another bundle: remove one of the two")
    output = OutputFile(place)
    try:
        _stream(bundle, lambda data: files.write_all(output.descriptor, data))
    except BaseException:
        output.abandon()
        raise
    output.commit()
    return str(place)
