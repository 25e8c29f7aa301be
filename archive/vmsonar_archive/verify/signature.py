"""Is a bundle's signature right, and by somebody we believe (ALLOWED SIGNERS of ssh-keygen(1))?"""

import base64
import binascii
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from vmsonar_archive.format import bag, ssh_signature
from vmsonar_archive.format.ssh_signature import KEY_TYPE, NAMESPACE, BadSignature, key_blob
from vmsonar_archive.read.findings import Code, Finding, Report
from vmsonar_archive.read.source import BundleSource
from vmsonar_archive.system.errors import UsageError, VmsonarError

#: Names and patterns; no brackets, which mean something in a shell and nothing to OpenSSH.
_PATTERNS = r"!?[A-Za-z0-9_.@*?+:%/-]{1,255}(?:,!?[A-Za-z0-9_.@*?+:%/-]{1,255})*"
_PRINCIPALS = re.compile(rf'(?:"({_PATTERNS})"|({_PATTERNS}))[ \t]+')
_OPTION = re.compile(r'(cert-authority|(namespaces|valid-after|valid-before)="([^"\\]*)")(,|[ \t]+)')
_KEY = re.compile(rf"{KEY_TYPE}[ \t]+([A-Za-z0-9+/]+={{0,2}})(?:[ \t]|$)")
_TIME = re.compile(r"(?:[0-9]{8}|[0-9]{12}|[0-9]{14})Z?")
_TIMES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_SIGNATURE = 4096
_MAX_SIGNERS = 4 * 1024 * 1024
#: Where ssh-keygen is looked for, whatever PATH says: it decides whom we believe.
_PLACES = "/usr/bin:/bin:/usr/local/bin"
_SECONDS = 30


@dataclass(frozen=True, slots=True)
class AllowedSigner:
    """One line of the file."""

    principals: list[str]
    blob: bytes
    namespaces: list[str] | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def allows(self, identity: str, key: bytes, now: datetime) -> bool:
        """Whether this line lets that identity sign with that key at that time."""
        if self.blob != key_blob(key) or not _matches(self.principals, identity):
            return False
        if self.namespaces is not None and not _matches(self.namespaces, NAMESPACE):
            return False
        begun = self.valid_after is None or now >= self.valid_after
        return begun and (self.valid_before is None or now < self.valid_before)


def _matches(patterns: list[str], name: str) -> bool:
    """A pattern list of ssh_config(5): a match with ! takes precedence."""
    if any(pattern[0] == "!" and fnmatchcase(name, pattern[1:]) for pattern in patterns):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns if pattern[0] != "!")


def parse_allowed_signers(content: bytes, where: str) -> list[AllowedSigner]:
    """Reads the file; what is not beyond doubt is refused, with its line and the reason."""
    found = []
    # Only \n ends a line: what Python takes for one elsewhere, U+2028 or a form feed, would hide one from OpenSSH.
    for number, raw in enumerate(content.split(b"\n"), 1):
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape").lstrip(" \t")
        try:
            if _CONTROL.search(line):
                raise ValueError("there is a control character in it")
            if line and not line.startswith("#"):
                found += _parse_line(line)
        except (ValueError, binascii.Error) as error:
            raise UsageError(
                f"{where}, line {number}: {error} (ssh-keygen, which might know better, is not here)"
            ) from None
    return found


def _parse_line(line: str) -> list[AllowedSigner]:
    """The one signer of a line; none where it is an authority, whose certificates we do not take."""
    named = _PRINCIPALS.match(line)
    if named is None:
        raise ValueError(
            "it does not begin with names such as web1,db*, in letters that OpenSSH takes as they are"
        )
    options, rest = _parse_options(line[named.end() :])
    key = _KEY.match(rest)
    if key is None:
        raise ValueError(f"no option that is known, and no key of the type {KEY_TYPE}, at {rest[:40]!a}")
    blob = b"" if len(key[1]) % 4 else base64.b64decode(key[1], validate=True)
    if blob != key_blob(blob[-32:]) or base64.b64encode(blob).decode() != key[1]:
        raise ValueError(f"this is no key of the type {KEY_TYPE}: {key[1][:40]}…")
    begin, end = _parse_time(options.get("valid-after")), _parse_time(options.get("valid-before"))
    if begin is not None and end is not None and end <= begin:
        raise ValueError("valid-before is not after valid-after")
    namespaces = options.get("namespaces")
    if namespaces is not None and not re.fullmatch(_PATTERNS, namespaces):
        raise ValueError(f"{namespaces!a} is no list of namespaces")
    if "cert-authority" in options:
        return []
    principals = (named[1] or named[2]).split(",")
    return [AllowedSigner(principals, blob, namespaces.split(",") if namespaces else None, begin, end)]


def _parse_options(text: str) -> tuple[dict[str, str], str]:
    """Options with their values, and what follows them."""
    options: dict[str, str] = {}
    position = 0
    while option := _OPTION.match(text, position):
        name = option[2] or option[1]
        if name in options:
            raise ValueError(f"{name} is there twice")
        options[name] = option[3] or ""
        position = option.end()
        if option[4] != ",":
            return options, text[position:]
    if options:
        raise ValueError(f"this is no option: {text[position : position + 40]!a}")
    return options, text


def _parse_time(text: str | None) -> datetime | None:
    """YYYYMMDD[HHMM[SS]][Z]: local time unless it ends in Z."""
    if text is None:
        return None
    digits = text.removesuffix("Z")
    if not _TIME.fullmatch(text) or not "1971" <= digits[:4] <= "9000":
        raise ValueError(f"{text!a} is not a time as YYYYMMDD[HHMM[SS]][Z]")
    time = datetime.strptime(digits, _TIMES[len(digits)])  # noqa: DTZ007 - the zone is set in the next line
    return time.replace(tzinfo=UTC) if text.endswith("Z") else time.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Keygen:
    """An ssh-keygen that can check signatures (OpenSSH 8.1 or later)."""

    program: str

    @classmethod
    def find(cls, places: str = _PLACES) -> "Keygen | None":
        """The one of this machine; None where there is none, or one that is too old to be asked."""
        program = shutil.which("ssh-keygen", path=places)
        if program is None:
            return None
        keygen = cls(os.path.abspath(program))
        # A signature that is none: it fails, but an old one fails because it knows no -Y.
        said = keygen._run(["check-novalidate", "-n", "x", "-s", os.devnull], b"")[1]
        return None if "usage:" in said else keygen

    def doubt(self, allowed: bytes, identity: str, signature: bytes, message: bytes) -> str | None:
        """None if that identity signed the message, as the allowed-signers file has it; or the first line it says."""
        with tempfile.TemporaryDirectory(prefix="vmsonar-") as folder:
            signers, signed = Path(folder, "allowed_signers"), Path(folder, "signature")
            signers.write_bytes(allowed)
            signed.write_bytes(signature)
            asked = ["verify", "-f", str(signers), "-I", identity, "-n", NAMESPACE, "-s", str(signed)]
            code, said = self._run(asked, message)
        # Its messages name the file by the path that only we know.
        lines = said.replace(f"{signers}:", "line ").splitlines()
        return ("".join(lines[:1])[:200]) if code else None

    def _run(self, arguments: list[str], message: bytes) -> tuple[int, str]:
        settings = {"PATH": _PLACES, "LC_ALL": "C"}
        if zone := os.environ.get("TZ"):
            settings["TZ"] = zone
        command = [self.program, "-Y", *arguments]
        try:
            done = subprocess.run(
                command,
                input=message,
                capture_output=True,
                env=settings,
                cwd="/",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise VmsonarError(f"{self.program} did not answer for {_SECONDS} s") from None
        except OSError as error:
            raise VmsonarError(f"cannot run {self.program}: {error.strerror}") from None
        said = done.stderr[:65536].decode("ascii", "backslashreplace").replace("\r\n", "\n")
        return done.returncode, "".join(
            letter if letter.isprintable() or letter == "\n" else "?" for letter in said
        )


@dataclass(frozen=True, slots=True)
class Trust:
    """Who must have signed."""

    #: The allowed-signers file, for ssh-keygen; and its lines, where there is no ssh-keygen.
    content: bytes
    keygen: Keygen | None
    signers: list[AllowedSigner]
    identity: str
    now: datetime

    def doubt(self, signature: bytes, message: bytes) -> str | None:
        """Why a signature, which is right, is not by whom it must be; None where it is."""
        if self.keygen is not None:
            said = self.keygen.doubt(self.content, self.identity, signature, message)
            return f" (ssh-keygen: {said})" if said else said
        key = ssh_signature.decode(signature).key
        return None if any(one.allows(self.identity, key, self.now) for one in self.signers) else ""


def read_trust(allowed_signers: Path, identity: str) -> Trust:
    """Reads an allowed-signers file for one identity."""
    if not identity or not identity.isprintable():
        raise UsageError(f"--identity {identity!a}: give a name as it stands in {allowed_signers}")
    try:
        with allowed_signers.open("rb") as file:
            content = file.read(_MAX_SIGNERS + 1)
    except OSError as error:
        raise VmsonarError(f"cannot read {allowed_signers}: {error.strerror}") from None
    if len(content) > _MAX_SIGNERS:
        raise UsageError(f"{allowed_signers} has more than {_MAX_SIGNERS} bytes: this is no list of signers")
    keygen = Keygen.find()
    signers = [] if keygen else parse_allowed_signers(content, str(allowed_signers))
    return Trust(content, keygen, signers, identity, datetime.now(UTC))


def check_signature(
    source: BundleSource, tag_manifest: bytes | None, trust: Trust | None, report: Report
) -> None:
    """Reports the key that signed, when the signature is right, or what is wrong with it."""
    if bag.SIGNATURE not in source.walked.members:
        if trust is not None:
            report.add(Finding.of(Code.UNSIGNED, "", "a signature is demanded, and there is none"))
        return
    message = tag_manifest or b""
    try:
        content = source.read_member(bag.SIGNATURE, _MAX_SIGNATURE)
        signature = ssh_signature.decode(content)
        key = ssh_signature.key_text(signature.key)
        shown = f"{ssh_signature.fingerprint(signature.key)} ({key})"
        code, detail = _judged(signature, content, message, trust, shown)
        report.signed_by = key
    except BadSignature as error:
        code, detail = Code.BAD_SIGNATURE, str(error)
    report.add(Finding.of(code, bag.SIGNATURE, detail))


def _judged(
    signature: ssh_signature.Signature, content: bytes, message: bytes, trust: Trust | None, shown: str
) -> tuple[Code, str]:
    try:
        ssh_signature.check(signature, message)
    except VmsonarError as error:
        if trust is not None:
            raise
        return Code.UNCHECKED_SIGNATURE, str(error)
    if trust is None:
        return Code.SIGNED, f"by {shown}, whoever that is"
    doubt = trust.doubt(content, message)
    if doubt is None:
        return Code.SIGNED, f"by {trust.identity}, {shown}"
    return Code.UNTRUSTED_SIGNER, f"is by {shown}, which is not a valid key of {trust.identity}{doubt}"
