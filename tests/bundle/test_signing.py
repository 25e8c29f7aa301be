"""Signatures that ssh-keygen makes and accepts, and whom verify believes."""

import hashlib
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from vmsonar_archive import sshsig
from vmsonar_archive.allowed_signers import parse_allowed_signers
from vmsonar_archive.bundle.make import Options, bundle_to_file, no_progress
from vmsonar_archive.bundle.signature import read_trust
from vmsonar_archive.bundle.source import BundleSource
from vmsonar_archive.errors import UsageError, VmsonarError
from vmsonar_archive.signer import SigningProcess
from vmsonar_archive.sshsig import BadSignature
from vmsonar_archive.verify_path import verify_path

from tests.bundle.test_command import vmsonar
from tests.parts import requires

pytestmark = requires("ssh_keygen")


def _keygen(folder: Path, name: str, *settings: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name, *settings]
    subprocess.run(command, check=True)
    return folder / name


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("host", "stranger"):
        _keygen(folder, name)
    public = (folder / "host.pub").read_text()
    (folder / "allowed").write_text(f'# whom we believe\nweb1 namespaces="bundle@vmsonar" {public}')
    return folder


@pytest.fixture(scope="module")
def signed(archive: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("signed")
    return Path(bundle_to_file(archive, output, no_progress, Options(sign=keys / "host")).output)


def test_ssh_keygen_accepts_it(signed: Path, keys: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", signed, "-C", tmp_path, "--strip-components=1"], check=True)
    command = ["ssh-keygen", "-Y", "verify", "-f", keys / "allowed", "-I", "web1", "-n", "bundle@vmsonar"]
    command += ["-s", tmp_path / "tagmanifest-sha256.txt.sig"]
    message = (tmp_path / "tagmanifest-sha256.txt").read_bytes()
    assert subprocess.run(command, input=message, capture_output=True, check=False).returncode == 0
    assert subprocess.run(command, input=message + b"x", capture_output=True, check=False).returncode != 0


def test_same_bytes_as_ssh_keygen(signed: Path, keys: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_bytes(b"hello\n")
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", keys / "host", "-n", "bundle@vmsonar", message], check=True
    )
    process = SigningProcess(keys / "host")
    made = process.sign(hashlib.sha512(b"hello\n").digest())
    process.close()
    assert made == (tmp_path / "message.sig").read_bytes()
    sshsig.check(sshsig.decode(made), b"hello\n")
    with pytest.raises(BadSignature, match="does not fit"):
        sshsig.check(sshsig.decode(made), b"hello")


@requires("bagit")
def test_bagit_accepts_a_signed_bag(signed: Path, tmp_path: Path) -> None:
    import bagit

    subprocess.run(["tar", "-xf", signed, "-C", tmp_path], check=True)
    assert bagit.Bag(str(tmp_path / signed.stem)).is_valid()


def test_verify_shows_the_key(signed: Path, keys: Path) -> None:
    report = verify_path(signed)
    public = " ".join((keys / "host.pub").read_text().split()[:2])
    assert report.ok
    assert report.signed_by == public
    listed = subprocess.run(["ssh-keygen", "-l", "-f", keys / "host.pub"], capture_output=True, check=True)
    (finding,) = report.findings
    assert finding.code.value == "signed"
    assert listed.stdout.decode().split()[1] in finding.detail


def test_verify_demands_it(signed: Path, bundle: Path, archive: Path, keys: Path, tmp_path: Path) -> None:
    demand = ["--allowed-signers", keys / "allowed", "--identity", "web1"]
    assert vmsonar("verify", signed, *demand).returncode == 0
    unsigned = vmsonar("verify", bundle, *demand)
    assert unsigned.returncode == 1
    assert b"error: unsigned: " in unsigned.stdout
    assert vmsonar("verify", archive, *demand).returncode == 1
    other = bundle_to_file(archive, tmp_path, no_progress, Options(sign=keys / "stranger"))
    refused = vmsonar("verify", other.output, *demand)
    assert refused.returncode == 1
    assert b"error: untrusted_signer: " in refused.stdout
    assert vmsonar("verify", signed, *demand[:3], "web2").returncode == 1
    assert vmsonar("verify", signed, *demand[:2]).returncode == 2


def test_every_flipped_byte_of_the_signature_shows(signed: Path, tmp_path: Path) -> None:
    source = BundleSource(signed)
    member = source.walked.members["tagmanifest-sha256.txt.sig"]
    source.close()
    content = bytearray(signed.read_bytes())
    changed = tmp_path / "changed.tar"
    for position in range(member.offset, member.offset + member.size):
        content[position] ^= 1
        changed.write_bytes(content)
        assert not verify_path(changed).ok, position
        content[position] ^= 1


def test_signature_for_something_else_is_refused(keys: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_bytes(b"hello\n")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", keys / "host", "-n", "git", message], check=True)
    with pytest.raises(BadSignature, match="made for 'git'"):
        sshsig.check(sshsig.decode((tmp_path / "message.sig").read_bytes()), b"hello\n")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", True),
        ('namespaces="bundle@vmsonar"', True),
        ('namespaces="git,bundle@*"', True),
        ('namespaces="git"', False),
        ('valid-after="20260101Z",valid-before="20270101000000Z"', True),
        ('valid-before="20260101"', False),
        ('valid-after="202701010000Z"', False),
        ("cert-authority", False),
    ],
)
def test_allowed_signers_options(options: str, expected: bool, keys: Path) -> None:
    kind, key, *_ = (keys / "host.pub").read_text().split()
    lines = f"web*,!web9 {options} {kind} {key} a comment\n"
    signers = parse_allowed_signers(lines, "file")
    raw = SigningProcess(keys / "host")
    raw.close()
    now = datetime(2026, 11, 16, tzinfo=UTC)
    assert any(one.allows("web1", raw.key, "bundle@vmsonar", now) for one in signers) is expected
    assert not any(one.allows("web9", raw.key, "bundle@vmsonar", now) for one in signers)
    assert not any(one.allows("db1", raw.key, "bundle@vmsonar", now) for one in signers)


def test_bad_allowed_signers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "allowed").write_text("web1 no-such-option ssh-ed25519 AAAA\n")
    with pytest.raises(UsageError, match="line 1: unknown option no-such-option"):
        read_trust(tmp_path / "allowed", "web1")


def test_keys_that_cannot_sign(archive: Path, keys: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", tmp_path / "rsa"], check=True)
    for key, word in (
        (tmp_path / "rsa", "not an ed25519"),
        (keys / "allowed", "OpenSSH"),
        (tmp_path / "no", "No such"),
    ):
        with pytest.raises(VmsonarError, match=word):
            bundle_to_file(archive, tmp_path / "x.tar", no_progress, Options(sign=key))
    assert not list(tmp_path.glob("x.tar*"))


@requires("root")
def test_key_that_only_root_can_read(keys: Path, tmp_path: Path) -> None:
    """The tree is walked without root's rights; the key is in another process, which has them."""
    import os

    from tests.bundle.making import make_archive

    root = make_archive(tmp_path / "archive")
    for path in [root, *root.rglob("*")]:
        os.chown(path, 54321, 54321)
    done = vmsonar("bundle", "--archive", root, "-o", tmp_path / "x.tar", "--sign", keys / "host")
    assert done.returncode == 0, done.stderr
    assert verify_path(tmp_path / "x.tar").signed_by is not None
