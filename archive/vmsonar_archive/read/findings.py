"""Findings of verification and reading: data with stable codes."""

from datetime import datetime
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """Only an error makes the answer no."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Code(StrEnum):
    """Stable names of everything that can be found."""

    TORN_TAIL = "torn_tail"
    UNSEALED = "unsealed"
    CORRUPT = "corrupt"
    MISSING = "missing"
    UNLISTED = "unlisted"
    REFUSED = "refused"
    CHAIN_BROKEN = "chain_broken"
    HEAD_DIFFERS = "head_differs"
    SAMPLING_GAP = "sampling_gap"
    DROPPED = "dropped"
    NEWER_FORMAT = "newer_format"
    BAD_RECORD = "bad_record"
    REPEATED = "repeated"
    PENDING = "pending"
    NOT_CANONICAL = "not_canonical"
    NOT_A_BUNDLE = "not_a_bundle"
    PARTIAL = "partial"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BAD_SIGNATURE = "bad_signature"
    UNTRUSTED_SIGNER = "untrusted_signer"
    UNCHECKED_SIGNATURE = "unchecked_signature"
    UNCONFIRMED = "unconfirmed"
    UP_TO_DATE = "up_to_date"
    UNCHECKED_TABLES = "unchecked_tables"


_NOTES = {
    Code.TORN_TAIL,
    Code.UNSEALED,
    Code.SAMPLING_GAP,
    Code.DROPPED,
    Code.REPEATED,
    Code.PENDING,
    Code.PARTIAL,
    Code.SIGNED,
    Code.UNCHECKED_SIGNATURE,
    Code.UP_TO_DATE,
    Code.UNCHECKED_TABLES,
}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was found, and where."""

    code: Code
    severity: Severity
    path: str
    detail: str

    @classmethod
    def of(cls, code: Code, path: str, detail: str, severity: Severity | None = None) -> "Finding":
        """A finding with the severity that its code has by default."""
        usual = Severity.NOTE if code in _NOTES else Severity.ERROR
        return cls(code, severity or usual, path, detail)


class Report(msgspec.Struct, kw_only=True):
    """The answer of a verification."""

    ok: bool = True
    samples: int = 0
    files: int = 0
    first: datetime | None = None
    last: datetime | None = None
    head: str = ""
    #: The key that signed a bundle, as in an authorized_keys file; only when the signature is right.
    signed_by: str | None = None
    findings: list[Finding] = []

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.ok = self.ok and finding.severity is not Severity.ERROR
