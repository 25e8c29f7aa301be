"""The signature of a bundle: is it right, and is it by somebody we believe?"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vmsonar_archive import sshsig
from vmsonar_archive.allowed_signers import AllowedSigner, parse_allowed_signers
from vmsonar_archive.bundle import names
from vmsonar_archive.bundle.source import BundleSource
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Code, Finding
from vmsonar_archive.sshsig import NAMESPACE, BadSignature

_MAX_SIGNATURE = 4096


@dataclass(frozen=True, slots=True)
class Trust:
    """Who must have signed."""

    signers: list[AllowedSigner]
    identity: str
    now: datetime


def read_trust(allowed_signers: Path, identity: str) -> Trust:
    """Reads an allowed-signers file for one identity."""
    try:
        text = allowed_signers.read_text(encoding="utf-8")
    except OSError as error:
        raise VmsonarError(f"cannot read {allowed_signers}: {error.strerror}") from None
    signers = parse_allowed_signers(text, str(allowed_signers))
    return Trust(signers, identity, datetime.now(UTC))


def check_signature(
    source: BundleSource, tag_manifest: bytes | None, trust: Trust | None, found: list[Finding]
) -> str | None:
    """The key that signed, when the signature is right; what is wrong with it is added to the findings."""
    if names.SIGNATURE not in source.walked.members:
        if trust is not None:
            found.append(Finding.of(Code.UNSIGNED, "", "a signature is demanded, and there is none"))
        return None
    try:
        signature = sshsig.decode(source.read_member(names.SIGNATURE, _MAX_SIGNATURE))
        _check(signature, tag_manifest or b"", trust, found)
    except BadSignature as error:
        found.append(Finding.of(Code.BAD_SIGNATURE, names.SIGNATURE, str(error)))
        return None
    return sshsig.key_text(signature.key)


def _check(signature: sshsig.Signature, message: bytes, trust: Trust | None, found: list[Finding]) -> None:
    shown = f"{sshsig.fingerprint(signature.key)} ({sshsig.key_text(signature.key)})"
    try:
        sshsig.check(signature, message)
    except BadSignature:
        raise
    except VmsonarError as error:
        if trust is not None:
            raise
        found.append(Finding.of(Code.UNCHECKED_SIGNATURE, names.SIGNATURE, str(error)))
        return
    if trust is None:
        found.append(Finding.of(Code.SIGNED, names.SIGNATURE, f"by {shown}, whoever that is"))
    elif any(one.allows(trust.identity, signature.key, NAMESPACE, trust.now) for one in trust.signers):
        found.append(Finding.of(Code.SIGNED, names.SIGNATURE, f"by {trust.identity}, {shown}"))
    else:
        detail = f"is by {shown}, which is not a valid key of {trust.identity}"
        found.append(Finding.of(Code.UNTRUSTED_SIGNER, names.SIGNATURE, detail))
