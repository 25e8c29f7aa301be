"""bundle.json: what a bundle holds beyond, or short of, what the journal in it says."""

from datetime import UTC, datetime

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.format.facts import ContentFacts
from vmsonar_archive.format.journal import JournalEntry, Ledger
from vmsonar_archive.records.ids import ArchiveId, Sha256, told
from vmsonar_archive.system.errors import NOT_JSON, FormatError, NewerFormat

#: A reader refuses a higher one.
BUNDLE_FORMAT = 1

# So many are in a description of the greatest size that we write; it bounds what decoding can cost.
_MAX_VALUES = 400_000

#: How a file came to differ from the journal's: still open, cut by time or number, kinds left out, redacted, made here.
LIVE, CUT, SELECT, REDACT, DERIVE = "live", "cut", "select", "redact", "derive"


class _Subject(ContentFacts, frozen=True):
    """What a description begins with, before the fields of ContentFacts."""

    path: str
    operations: list[str]


class BundledFile(_Subject, frozen=True, kw_only=True):
    """A file that the journal does not list as it lies in the bundle."""

    sha256: Sha256
    #: The file of the archive it was made from, and its hash (under redaction: keyed).
    source: str | None = None
    source_sha256: str | None = None

    def entry(self) -> JournalEntry:
        """The same as a journal would say it."""
        return JournalEntry(
            "bundle", self.path, self.last or datetime.fromtimestamp(0, UTC), **self.content()
        )


class BundleRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of bundle.json."""

    format: int
    archive: ArchiveId
    head: Sha256
    #: The bag's folder in the tar file, so that a signature covers it; None in bundles of earlier versions.
    folder: str | None = None
    first: datetime | None = None
    last: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Records up to this number were left out, because an earlier upload has them.
    after_seq: int | None = None
    only: list[str] = []
    redacted: list[str] = []
    #: Files that are not as the journal says.
    files: list[BundledFile] = []
    #: Files that the journal lists and that were left out on request.
    left_out: list[str] = []

    @property
    def is_partial(self) -> bool:
        """Whether something was left out or replaced on request."""
        asked = self.since or self.until or self.only or self.redacted or self.left_out
        return bool(asked) or self.after_seq is not None

    def told(self) -> str:
        """What was asked for, in words."""
        since = f"since {self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since else ""
        until = f"until {self.until:%Y-%m-%dT%H:%M:%SZ}" if self.until else ""
        after = f"after record {self.after_seq}" if self.after_seq is not None else ""
        only = f"only {', '.join(self.only)}" if self.only else ""
        redacted = f"redacted {', '.join(self.redacted)}" if self.redacted else ""
        return "; ".join(filter(None, (since, until, after, only, redacted))) or "files left out"

    def apply(self, ledger: Ledger) -> None:
        """Makes a journal tell what is in the bundle."""
        for path in self.left_out:
            ledger.current.pop(path, None)
        for file in self.files:
            ledger.current[file.path] = file.entry()
            ledger.gone.pop(file.path, None)

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


class _Format(msgspec.Struct):
    """The one field that every version has."""

    format: int


def parse_record(content: bytes, where: str) -> BundleRecord:
    """Reads bundle.json; refuses what a later version wrote."""
    if content.count(b",") > _MAX_VALUES:
        raise FormatError(f"{where} does not describe a bundle: it has more than {_MAX_VALUES} values")
    try:
        number = msgspec.json.decode(content, type=_Format).format
        if number > BUNDLE_FORMAT:
            raise NewerFormat.at(where, number, BUNDLE_FORMAT)
        record = msgspec.json.decode(content, type=BundleRecord)
        paths = (*record.left_out, *(one.path for one in record.files), *(one.source for one in record.files))
        if not all(path is None or layout.is_archived(path) for path in paths):
            raise msgspec.ValidationError("a path that no file of an archive has")
        return record
    except NOT_JSON as error:
        raise FormatError(f"{where} does not describe a bundle: {told(error)}") from None
