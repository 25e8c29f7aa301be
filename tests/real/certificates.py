"""A test certificate authority and server certificates, made with openssl(1)."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "3650"


@dataclass(frozen=True)
class Authority:
    """A self-signed authority that lives in `folder`."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        return self.folder / "ca.key"

    def issue(self, name: str) -> Path:
        """Makes a certificate for loopback; returns a PEM file with its key and chain."""
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        _openssl("req", "-x509", *_new_key(key), "-subj", f"/CN={name}", "-days", DAYS,
                 "-CA", self.certificate, "-CAkey", self.key, "-out", certificate,
                 "-addext", "basicConstraints=critical,CA:FALSE",
                 "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")  # fmt: skip
        bundle = self.folder / f"{name}-with-key.pem"
        bundle.write_text("".join(part.read_text() for part in (key, certificate, self.certificate)))
        return bundle


def make_authority(folder: Path, name: str = "vmsonar test CA") -> Authority:
    authority = Authority(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _openssl("req", "-x509", *_new_key(authority.key), "-subj", f"/CN={name}", "-days", DAYS,
             "-out", authority.certificate)  # fmt: skip
    return authority


def _new_key(path: Path) -> list[str | Path]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", path]


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.strip()}")
