"""Signs digests: `python -m vmsonar_archive.bundle.signer KEY` holds the key, and sees nothing of what is bundled.

It says the public key, then answers each SHA-512 digest (64 bytes) with a signature file.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from vmsonar_archive.bundle.write import Signer
from vmsonar_archive.format import ssh_signature
from vmsonar_archive.format.ssh_signature import DIGEST_SIZE, NAMESPACE, Signature
from vmsonar_archive.system import files
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import VmsonarError, missing_extra

_KEY_SIZE = 32


class SigningProcess:
    """A process that has the key; start it while the key can be read."""

    def __init__(self, key: Path) -> None:
        self._process = subprocess.Popen(
            python("-m", "vmsonar_archive.bundle.signer", str(key)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.key = self._read(self._process.stdout, _KEY_SIZE)
        #: How long the signature file will be.
        self.size = len(ssh_signature.encode(Signature(self.key, NAMESPACE, bytes(64))))

    @property
    def signer(self) -> Signer:
        """Signs for code that holds the tag manifest and not the key."""
        return _signer(self.size, self.sign)

    @property
    def ends(self) -> tuple[int, int, int]:
        """What another process needs for signer_through()."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin.fileno(), self._process.stdout.fileno(), self.size

    def sign(self, digest: bytes) -> bytes:
        """The signature file for a digest."""
        assert self._process.stdin is not None
        self._process.stdin.write(digest)
        self._process.stdin.flush()
        return self._read(self._process.stdout, self.size)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process.wait()

    def _read(self, stream: IO[bytes] | None, size: int) -> bytes:
        assert stream is not None
        answer = stream.read(size)
        if len(answer) == size:
            return answer
        said = self._process.stderr.read(2000).decode(errors="replace") if self._process.stderr else ""
        self.close()
        raise VmsonarError(said.strip() or "the signing process ended without a signature")


def signer_through(to: int, back: int, size: int) -> Signer:
    """Signs through the pipes of a signing process that another process started."""

    def sign(digest: bytes) -> bytes:
        files.write_all(to, digest)
        answer = b""
        while len(answer) < size and (part := os.read(back, size - len(answer))):
            answer += part
        if len(answer) < size:
            raise VmsonarError("the signing process ended without a signature")
        return answer

    return _signer(size, sign)


def _signer(size: int, sign: Callable[[bytes], bytes]) -> Signer:
    return Signer(size, lambda content: sign(hashlib.sha512(content).digest()))


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
