"""Whom to believe: the ALLOWED SIGNERS file of ssh-keygen(1)."""

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from vmsonar_archive.errors import UsageError
from vmsonar_archive.sshsig import KEY_TYPE, key_blob

_OPTION = re.compile(r'([a-z-]+)(?:="([^"]*)")?(?:,|$)', re.IGNORECASE)
_TIMES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


@dataclass(frozen=True, slots=True)
class AllowedSigner:
    """One line of the file."""

    principals: list[str]
    blob: bytes
    namespaces: list[str] | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def allows(self, identity: str, key: bytes, namespace: str, now: datetime) -> bool:
        """Whether this line lets that identity sign with that key at that time."""
        if self.blob != key_blob(key) or not _matches(self.principals, identity):
            return False
        if self.namespaces is not None and not _matches(self.namespaces, namespace):
            return False
        begun = self.valid_after is None or now >= self.valid_after
        return begun and (self.valid_before is None or now < self.valid_before)


def _matches(patterns: list[str], name: str) -> bool:
    """A pattern list of ssh_config(5): a match with ! takes precedence."""
    if any(pattern[0] == "!" and fnmatchcase(name, pattern[1:]) for pattern in patterns if pattern):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns if pattern and pattern[0] != "!")


def parse_allowed_signers(text: str, where: str) -> list[AllowedSigner]:
    """Reads the file; keys of other types are passed over, what cannot be read is refused."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            signer = _parse_line(line.strip())
        except (ValueError, binascii.Error) as error:
            raise UsageError(f"{where}, line {number}: {error}") from None
        if signer is not None:
            found.append(signer)
    return found


def _parse_line(line: str) -> AllowedSigner | None:
    principals, _, rest = line.partition(" ")
    rest = rest.strip()
    options = ""
    if not rest.startswith(("ssh-", "ecdsa-", "sk-")):
        options, rest = _split_options(rest)
    kind, _, key = rest.partition(" ")
    values = {name.lower(): value for name, value in _OPTION.findall(options)}
    unknown = values.keys() - {"namespaces", "valid-after", "valid-before", "cert-authority"}
    if unknown:
        raise ValueError(f"unknown option {', '.join(sorted(unknown))}")
    if kind != KEY_TYPE or "cert-authority" in values:
        return None
    return AllowedSigner(
        principals.strip('"').split(","),
        base64.b64decode(key.split()[0] if key.split() else "", validate=True),
        values["namespaces"].split(",") if "namespaces" in values else None,
        _parse_time(values.get("valid-after")),
        _parse_time(values.get("valid-before")),
    )


def _split_options(text: str) -> tuple[str, str]:
    """Options end at the first space outside quotes."""
    quoted = False
    for position, character in enumerate(text):
        quoted ^= character == '"'
        if character in " \t" and not quoted:
            return text[:position], text[position:].strip()
    raise ValueError("there is no key")


def _parse_time(text: str | None) -> datetime | None:
    """YYYYMMDD[HHMM[SS]][Z]: local time unless it ends in Z."""
    if text is None:
        return None
    digits = text.removesuffix("Z")
    if not digits.isdigit() or len(digits) not in _TIMES:
        raise ValueError(f"{text!r} is not a time as YYYYMMDD[HHMM[SS]][Z]")
    time = datetime.strptime(digits, _TIMES[len(digits)])  # noqa: DTZ007 - the zone is set in the next line
    return time.replace(tzinfo=UTC) if text.endswith("Z") else time.astimezone(UTC)
