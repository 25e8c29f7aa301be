"""Replaces what fields declare sensitive by stable pseudonyms, HMAC-SHA-256 under a key that stays out of the bundle.

Ids are replaced in any case, each by one of the same shape, so that two bundles under different keys share none.
"""

import hmac
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.records import JobInfoRow, Sample, SysInfo
from vmsonar_archive.records.fields import Field, Sensitivity, element_of, fields_of
from vmsonar_archive.system.errors import UsageError

#: What can be asked for.
KINDS = tuple(kind for kind in Sensitivity if kind is not Sensitivity.NONE)
MIN_KEY = 16

_UUID = re.compile(r"(|GPU-|MIG-)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_HEX = re.compile(r"(|sha256:)([0-9a-f]{8,64})")
# Names of meters tell what was measured, not where.
_NO_IDENTITY = {"meter", "job_id"}
_MOST_REMEMBERED = 100_000

_Change = Callable[[Any], Any]
_S = TypeVar("_S", bound=msgspec.Struct)


def parse_kinds(text: str) -> frozenset[Sensitivity]:
    """`user,command`, or `all`."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    unknown = names - {kind.value for kind in KINDS} - {"all"}
    if unknown or not names:
        known = ", ".join(kind.value for kind in KINDS)
        raise UsageError(f"--redact knows {known} and all, not {', '.join(sorted(unknown)) or 'nothing'}")
    kinds = set(KINDS) if "all" in names else {Sensitivity(name) for name in names}
    # Control group paths hold the ids of containers and users.
    return frozenset(kinds | {Sensitivity.PATH})


class Redactor:
    """Redacts records; the same key gives the same pseudonyms."""

    def __init__(self, key: bytes, kinds: frozenset[Sensitivity]) -> None:
        if len(key) < MIN_KEY:
            raise UsageError(f"a key for redaction has at least {MIN_KEY} bytes")
        self.kinds = kinds
        self._key = key
        self._known: dict[tuple[str, str], str] = {}
        self._changes: dict[type[msgspec.Struct], list[tuple[str, _Change]]] = {}

    def sample(self, sample: Sample) -> Sample:
        """Changes a sample in place."""
        return self._struct(sample)

    def sysinfo(self, info: SysInfo) -> SysInfo:
        return self._struct(info)

    def identity(self, archive: ArchiveIdentity) -> ArchiveIdentity:
        """archive.json: ids in any case, host names where the host is to be hidden."""
        changes: dict[str, _Change] = dict.fromkeys(("archive", "machine_id", "instance_id"), self.identifier)
        if Sensitivity.HOST in self.kinds:
            changes |= dict.fromkeys(("hostname_short", "hostname_full"), self.text_of(Sensitivity.HOST))
        known = {name: value for name in changes if (value := getattr(archive, name)) is not None}
        hidden = {name: changes[name](value) for name, value in known.items()}
        return msgspec.structs.replace(archive, **hidden)

    def identifier(self, value: str) -> str:
        """An id of the same shape."""
        digest = self._digest("id", value)
        if match := _UUID.fullmatch(value):
            parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
            return match[1] + "-".join(parts)
        if match := _HEX.fullmatch(value):
            return match[1] + digest[: len(match[2])]
        return f"id-{digest[:16]}"

    def text_of(self, kind: Sensitivity) -> Callable[[str], str]:
        """Gives pseudonyms that say of what kind they are."""
        return lambda value: f"{kind.value}-{self._digest(kind.value, value)[:12]}"

    def _digest(self, kind: str, value: str) -> str:
        found = self._known.get((kind, value))
        if found is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = hmac.digest(self._key, f"{kind}\0{value}".encode(), "sha256").hex()
            self._known[kind, value] = found
        return found

    def _struct(self, struct: _S) -> _S:
        for name, change in self._changes_of(type(struct)):
            value = getattr(struct, name)
            if value is not None:
                setattr(struct, name, change(value))
        if isinstance(struct, JobInfoRow) and struct.job_id and struct.job_id != str(struct.pgid):
            struct.job_id = self.identifier(struct.job_id)
        return struct

    def _changes_of(self, struct: type[msgspec.Struct]) -> list[tuple[str, _Change]]:
        if struct not in self._changes:
            changes = ((field.name, self._change(field)) for field in fields_of(struct))
            self._changes[struct] = [(name, change) for name, change in changes if change is not None]
        return self._changes[struct]

    def _change(self, field: Field) -> _Change | None:
        """What is done to a field; None when nothing is."""
        element = element_of(field.type)
        if field.sensitivity in self.kinds:
            return self._hide(field)
        if element is not None:
            return self._redact_rows if self._changes_of(element) else None
        if field.type is str and field.unit == "id" and field.name not in _NO_IDENTITY:
            return self.identifier
        return None

    def _redact_rows(self, rows: list[msgspec.Struct]) -> list[msgspec.Struct]:
        return [self._struct(row) for row in rows]

    def _hide(self, field: Field) -> _Change:
        text = self.text_of(field.sensitivity)
        if field.type is str:
            return self.identifier if field.unit == "id" else text
        if field.type is int:
            return lambda value: int(self._digest(field.sensitivity.value, str(value))[:7], 16)
        if field.type == dict[str, str]:
            return lambda labels: {text(name): text(value) for name, value in labels.items()}
        # Whatever else it is, nobody has said how to hide parts of it.
        return lambda _value: None


def key_from_namespace(namespace: bytes) -> bytes:
    """The key of an archive's own, for those who bring none: it never leaves the node."""
    return hmac.digest(namespace.strip(), b"vmsonar redaction", "sha256")
