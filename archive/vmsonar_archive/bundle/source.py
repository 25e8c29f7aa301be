"""The archive inside a bundle, read in place."""

import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, cast

from vmsonar_archive.bundle import manifest, names
from vmsonar_archive.bundle.manifest import BadManifest
from vmsonar_archive.bundle.record import BUNDLE_FORMAT, BundleRecord, parse_record
from vmsonar_archive.bundle.walk import Member, Slice, walk
from vmsonar_archive.errors import UsageError, VmsonarError, cannot_open
from vmsonar_archive.journal import Ledger
from vmsonar_archive.source import Source

# A description of a bundle lists every derived file; more than this is not one of ours.
MAX_RECORD = 16 * 1024 * 1024
_MAGICS = {
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xfd7zXZ": "compressed by xz",
    b"BZh": "compressed by bzip2",
    b"PK": "a zip file",
    b"PAR1": "a Parquet file",
}


class NotABundle(UsageError):
    """A file that holds no archive of ours."""


class BundleSource(Source):
    """The files of an archive inside a bundle; no byte is unpacked to a disk."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path
        self._journals: dict[str | None, tuple[Ledger, bool]] = {}
        self._descriptor = _open(path)
        try:
            self.size = os.fstat(self._descriptor).st_size
            self.walked = walk(self._descriptor, self.size)
            if not self.walked.members:
                raise NotABundle(f"{path} is not a bundle: {self._what_else()}")
        except BaseException:
            self.close()
            raise

    def sizes(self) -> dict[str, int]:
        found = self.walked.members.items()
        inside = {n.removeprefix(names.PAYLOAD): m.size for n, m in found if n.startswith(names.PAYLOAD)}
        return dict(sorted(inside.items()))

    def open(self, path: str) -> BinaryIO:
        return self.open_member(names.PAYLOAD + path)

    def open_member(self, name: str) -> BinaryIO:
        """A stream over a file of the bag itself."""
        member = self.walked.members.get(name)
        if member is None:
            raise FileNotFoundError(2, "not in the bundle", name)
        return cast(BinaryIO, Slice(self._descriptor, member.offset, member.size))

    def read_member(self, name: str, limit: int) -> bytes:
        """The content of a small file of the bag."""
        member = self.walked.members.get(name, Member(0, 0))
        if member.size > limit:
            raise VmsonarError(f"{self.name}: {name} is far too large to be what its name says")
        with self.open_member(name) as stream:
            return stream.read()

    def trouble(self) -> str | None:
        """The first place that is not as it should be; what can be read may not be all."""
        if not self.walked.problems:
            return "the bundle is cut short" if self.walked.cut else None
        place, what = self.walked.problems[0]
        return f"{what} (at byte {place})"

    def sums(self) -> dict[str, str]:
        """The SHA-256 sums of the archive's files, as far as the manifest can be read."""
        try:
            listed = manifest.decode(self.read_member(names.MANIFEST, manifest.MAX_BYTES))
        except (OSError, BadManifest):
            return {}
        return {name.removeprefix(names.PAYLOAD): digest for name, digest in listed.items()}

    def record(self) -> BundleRecord:
        """What bundle.json says; an empty one when it was cut off."""
        try:
            content = self.read_member(names.BUNDLE, MAX_RECORD)
        except FileNotFoundError:
            return BundleRecord(format=BUNDLE_FORMAT, archive="", head="")
        return parse_record(content, f"{self.name}: {names.BUNDLE}")

    def journal(self, watched: str | None = None) -> tuple[Ledger, bool]:
        """What the journal in it says, with what bundle.json says of files that differ."""
        if watched in self._journals:
            return self._journals[watched]
        ledger, torn = super().journal(watched)
        # A description that cannot be read is for verification to name; what it would add is then missing.
        with suppress(VmsonarError):
            self.record().apply(ledger)
        self._journals[watched] = ledger, torn
        return ledger, torn

    def close(self) -> None:
        os.close(self._descriptor)

    def _what_else(self) -> str:
        if not self.size:
            return "it is empty"
        head = os.pread(self._descriptor, 512, 0)
        for magic, meaning in _MAGICS.items():
            if head.startswith(magic):
                return f"it is {meaning}"
        if head[257:262] == b"ustar":
            return f"it is a tar file of something else ({self.walked.problems[0][1]})"
        return "it is no tar file"


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise VmsonarError(f"{path} does not exist") from None
    except OSError as error:
        raise cannot_open(path, error) from None
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotABundle(f"{path} is neither a folder nor a regular file: give an archive or a bundle")
    return descriptor
