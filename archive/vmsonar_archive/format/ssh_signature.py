"""SSH signatures (SSHSIG, PROTOCOL.sshsig of OpenSSH) with ed25519 keys, as `ssh-keygen -Y` makes and accepts them."""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from vmsonar_archive.system.errors import missing_extra

NAMESPACE = "bundle@vmsonar"
#: Made over the message's SHA-512, as ssh-keygen does by default.
HASH = "sha512"
DIGEST_SIZE = 64
KEY_TYPE = "ssh-ed25519"

_MAGIC = b"SSHSIG"
# Version 1 follows.
_PREAMBLE = _MAGIC + (1).to_bytes(4, "big")
_BEGIN = "-----BEGIN SSH SIGNATURE-----\n"
_END = "-----END SSH SIGNATURE-----\n"
_WIDTH = 70


class BadSignature(ValueError):
    """A signature that is not one, or not of this message."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a signature file says; nothing in it is checked yet."""

    #: The ed25519 public key, 32 bytes.
    key: bytes
    namespace: str
    signature: bytes


def key_blob(key: bytes) -> bytes:
    """A public key as SSH writes it."""
    return _strings(KEY_TYPE.encode(), key)


def key_text(key: bytes) -> str:
    """A public key as in an authorized_keys file."""
    return f"{KEY_TYPE} {base64.b64encode(key_blob(key)).decode()}"


def fingerprint(key: bytes) -> str:
    """What `ssh-keygen -l` shows."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key_blob(key)).digest()).decode().rstrip("=")


def to_be_signed(digest: bytes) -> bytes:
    """The bytes that the key signs, for a message's digest."""
    return _MAGIC + _strings(NAMESPACE.encode(), b"", HASH.encode(), digest)


def encode(signature: Signature) -> bytes:
    """A signature file."""
    made = _strings(KEY_TYPE.encode(), signature.signature)
    namespace = signature.namespace.encode()
    blob = _PREAMBLE + _strings(key_blob(signature.key), namespace, b"", HASH.encode(), made)
    text = base64.b64encode(blob).decode()
    lines = [text[begin : begin + _WIDTH] + "\n" for begin in range(0, len(text), _WIDTH)]
    return (_BEGIN + "".join(lines) + _END).encode()


def decode(content: bytes) -> Signature:
    """Reads a signature file; refuses what encode() would not write."""
    try:
        text = content.decode("ascii")
        if not text.startswith(_BEGIN) or not text.endswith(_END):
            raise BadSignature("is not an SSH signature")
        blob = base64.b64decode(text[len(_BEGIN) : -len(_END)].replace("\n", ""), validate=True)
        signature = _decode_blob(blob)
    except (UnicodeDecodeError, binascii.Error):
        raise BadSignature("is not an SSH signature") from None
    if encode(signature) != content:
        raise BadSignature("is not an SSH signature by an ed25519 key in its usual form")
    return signature


def _decode_blob(blob: bytes) -> Signature:
    if not blob.startswith(_PREAMBLE):
        raise BadSignature("is not an SSH signature of version 1")
    key, namespace, _, _, made = islice(_parts(blob[len(_PREAMBLE) :]), 5)
    return Signature(_inner(key), namespace.decode("ascii", "replace"), _inner(made))


def _inner(blob: bytes) -> bytes:
    """What follows the key type."""
    parts = _parts(blob)
    if next(parts) != KEY_TYPE.encode():
        raise BadSignature("is not made by an ed25519 key")
    return next(parts)


def _strings(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _parts(data: bytes) -> Iterator[bytes]:
    """The strings that _strings() joined, as many as are asked for."""
    while True:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 or len(data) - 4 < size:
            raise BadSignature("is cut short")
        yield data[4 : 4 + size]
        data = data[4 + size :]


def check(signature: Signature, message: bytes) -> None:
    """Raises when the key did not sign this message in our namespace."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise missing_extra("sign", "checking a signature") from None
    if signature.namespace != NAMESPACE:
        raise BadSignature(f"is made for {signature.namespace!r}, not for {NAMESPACE}")
    try:
        key = Ed25519PublicKey.from_public_bytes(signature.key)
        key.verify(signature.signature, to_be_signed(hashlib.sha512(message).digest()))
    except (InvalidSignature, ValueError):
        raise BadSignature("does not fit what it signs") from None
