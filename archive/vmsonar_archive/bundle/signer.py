"""Signs digests: `python -m vmsonar_archive.bundle.signer KEY` holds the key, and sees nothing of what is bundled.

It says the public key, then answers each SHA-512 digest (64 bytes) with a signature file.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from vmsonar_archive.bundle.write import Signer
from vmsonar_archive.format import ssh_signature
from vmsonar_archive.format.ssh_signature import DIGEST_SIZE, NAMESPACE, Signature
from vmsonar_archive.system import files
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import VmsonarError, missing_extra

_KEY_SIZE = 32
_ENDED = "the signing process ended without a signature"


class SigningProcess:
    """A process that has the key; start it while the key can be read."""

    def __init__(self, key: Path) -> None:
        self._process = subprocess.Popen(
            python("-m", "vmsonar_archive.bundle.signer", str(key)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.key = self._process.stdout.read(_KEY_SIZE)
        if len(self.key) < _KEY_SIZE:
            said = self._process.communicate()[1][:2000].decode(errors="replace")
            raise VmsonarError(said.strip() or _ENDED)
        size = len(ssh_signature.encode(Signature(self.key, NAMESPACE, bytes(64))))
        #: What another process needs for signer_through().
        self.ends = self._process.stdin.fileno(), self._process.stdout.fileno(), size
        self.signer = signer_through(*self.ends)

    def close(self) -> None:
        self._process.communicate()


def signer_through(to: int, back: int, size: int) -> Signer:
    """Signs through the pipes of a signing process, for code that holds the tag manifest and not the key."""

    def sign(content: bytes) -> bytes:
        files.write_all(to, hashlib.sha512(content).digest())
        answer = b""
        while len(answer) < size and (part := os.read(back, size - len(answer))):
            answer += part
        if len(answer) < size:
            raise VmsonarError(_ENDED)
        return answer

    return Signer(size, sign)


def main(arguments: list[str]) -> int:
    """The process's entry: see the module's docstring."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    except ImportError:
        return _fail(str(missing_extra("sign", "signing a bundle")))
    path = arguments[0]
    try:
        key = load_ssh_private_key(Path(path).read_bytes(), password=None)
    except OSError as error:
        return _fail(f"cannot read the key {path}: {error.strerror}")
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return _fail(f"{path} is not an OpenSSH private key without a passphrase")
    if not isinstance(key, Ed25519PrivateKey):
        return _fail(f"{path} is not an ed25519 key: make one with ssh-keygen -t ed25519")
    public = key.public_key().public_bytes_raw()
    sys.stdout.buffer.write(public)
    sys.stdout.buffer.flush()
    # More than once only when an upload has to be repeated.
    while len(digest := sys.stdin.buffer.read(DIGEST_SIZE)) == DIGEST_SIZE:
        made = Signature(public, NAMESPACE, key.sign(ssh_signature.to_be_signed(digest)))
        sys.stdout.buffer.write(ssh_signature.encode(made))
        sys.stdout.buffer.flush()
    return 0


def _fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
