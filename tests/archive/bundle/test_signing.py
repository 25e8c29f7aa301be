"""Signatures that ssh-keygen makes and accepts, and whom verify believes."""

import random
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.bundle.make import BundleOptions, bundle_to_file
from vmsonar_archive.bundle.signer import SigningProcess
from vmsonar_archive.format import bag, ssh_signature
from vmsonar_archive.format.ssh_signature import BadSignature
from vmsonar_archive.read.source import BundleSource
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.verify.signature import Keygen, parse_allowed_signers, read_trust

from tests.archive.bundle.commands import vmsonar
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
    return Path(bundle_to_file(archive, output, options=BundleOptions(sign=keys / "host")).output)


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
    made = process.signer.sign(b"hello\n")
    process.close()
    assert made == (tmp_path / "message.sig").read_bytes()
    ssh_signature.check(ssh_signature.decode(made), b"hello\n")
    with pytest.raises(BadSignature, match="does not fit"):
        ssh_signature.check(ssh_signature.decode(made), b"hello")


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
    other = bundle_to_file(archive, tmp_path, options=BundleOptions(sign=keys / "stranger"))
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
        ssh_signature.check(ssh_signature.decode((tmp_path / "message.sig").read_bytes()), b"hello\n")


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
    lines = f"web*,!web9\t{options} {kind} \t{key} a comment\n".encode()
    signers = parse_allowed_signers(lines, "file")
    raw = SigningProcess(keys / "host")
    raw.close()
    now = datetime(2026, 11, 16, tzinfo=UTC)
    assert any(one.allows("web1", raw.key, now) for one in signers) is expected
    assert not any(one.allows("web9", raw.key, now) for one in signers)
    assert not any(one.allows("db1", raw.key, now) for one in signers)


REFUSED = (
    ("web1 no-such-option KEY", "no option that is known"),
    ("web1 valid-before=20990101Z KEY", "no option that is known"),
    ('web1 valid-before="2099-01-01" KEY', "not a time"),
    ('web1 valid-before="20990101X" KEY', "not a time"),
    ('web1 valid-before="\u0662\u0660990101" KEY', "not a time"),
    ('web1 valid-before="20990231" KEY', "day is out of range"),
    ('web1 namespaces="" KEY', "no list of namespaces"),
    ('web1 namespaces="git",namespaces="*" KEY', "namespaces is there twice"),
    ('web1 cert-authority,,namespaces="*" KEY', "no option: ',namespaces"),
    ('web1 valid-after="20990101",valid-before="20980101" KEY', "not after"),
    ("web[0-9] KEY", "does not begin with names"),
    ("web1,,db KEY", "does not begin with names"),
    ("web1\u2028db KEY", "does not begin with names"),
    ("# a comment\fweb1 KEY", "control character"),
    ("web1\x0bKEY", "control character"),
    ("web1 KEYx", "no key of the type"),
    ("web1 ssh-rsa AAAA", "no key of the type"),
    ("KEY", "no key of the type"),
)


@pytest.mark.parametrize(("line", "reason"), REFUSED)
def test_what_is_not_beyond_doubt_is_refused(line: str, reason: str, keys: Path) -> None:
    key = " ".join((keys / "host.pub").read_text().split()[:2])
    with pytest.raises(UsageError, match=rf"^file, line 2: .*{re.escape(reason)}"):
        parse_allowed_signers(("\n" + line.replace("KEY", key)).encode(), "file")


# What may happen to a line: characters that one of two readers takes for a blank, an end, a quotation or a pattern.
_ODD = ("\t", " ", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u00a0", "\0", '"', "\\", "'", ",", "=", "[", "]",
        "!", "*", "?", "#", "Z", "0", "\n", "\n\r", "\ufeff", "web1")  # fmt: skip
_OPTIONS = (
    "", "", "", 'namespaces="bundle@vmsonar"', 'namespaces="git"', 'namespaces="git,bundle@*"', 'namespaces="!git,*"',
    "namespaces=bundle@vmsonar", "valid-before=20200101", 'valid-before="20990101",valid-before=20200101',
    'NAMESPACES="git"', 'valid-before="20990101"', "valid-before=20990101Z",
    'valid-before="20200101Z"', 'valid-before="2099010112"', 'valid-before="209901011200"', 'valid-after="20200101UTC"',
    'valid-after="20990101",valid-before="20980101"', 'valid-after="19700101Z"', 'valid-before="20990230"',
    'namespaces="git",namespaces="*"', "cert-authority", 'cert-authority,namespaces="*"', "no-touch-required",
    'namespaces="*",', 'namespaces="a\\"b,*"', 'valid-before="20990101 "', 'valid-before="20990101235960"',
)  # fmt: skip
_NAMES = (
    "web1",
    "web*",
    "*",
    "web?",
    "web[0-9]",
    "web1,db1",
    "!web1,*",
    "*,!web2",
    '"web1"',
    '"web1,db 1"',
    "WEB1",
    "db1",
    "web1,",
)


def _lines(chance: random.Random, key: str, stranger: str) -> bytes:
    """An allowed-signers file of one to three lines, most of which are nearly right."""
    made = []
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
        kind, blob = chance.choice((key, key, key, stranger)).split()[:2]
        blank = chance.choice((" ", " ", "\t", "  ", " \t"))
        aspect = chance.choice(("", "names", "options", "options", "kind", "letters", "hidden", "all"))
        names = chance.choice(_NAMES if aspect in ("names", "all") else _NAMES[:4])
        options = chance.choice(_OPTIONS if aspect in ("options", "all") else _OPTIONS[:4])
        kind = chance.choice(("ssh-rsa", "sk-ssh-ed25519@openssh.com", "")) if aspect == "kind" else kind
        words = (names, options, kind, blob, chance.choice(("", "", "a comment")))
        line = blank.join(word for word in words if word)
        line = f"{chance.choice(('# note', 'x'))}{chance.choice(_ODD)}{line}" if aspect == "hidden" else line
        for _ in range(chance.choice((1, 2)) if aspect in ("letters", "all") else 0):
            at = (
                chance.randrange(len(line)) if chance.random() < 0.3 else chance.randrange(min(48, len(line)))
            )
            line = line[:at] + chance.choice(_ODD) + line[at + chance.choice((0, 0, 1)) :]
        made.append(line)
    return "\n".join(made).encode() + chance.choice((b"\n", b"", b"\r\n"))


def _differences(keys: Path, count: int) -> tuple[list[bytes], int, int]:
    """Files that we accept and ssh-keygen does not; how many both accept; how many ssh-keygen alone accepts."""
    keygen = Keygen.find()
    assert keygen is not None
    process = SigningProcess(keys / "host")
    signature = process.signer.sign(b"hello\n")
    process.close()
    key, stranger = (keys / "host.pub").read_text(), (keys / "stranger.pub").read_text()
    chance, now = random.Random(12), datetime.now(UTC)
    wrong, both, alone = [], 0, 0
    for _ in range(count):
        content = _lines(chance, key, stranger)
        try:
            signers = parse_allowed_signers(content, "file")
            ours = any(one.allows("web1", process.key, now) for one in signers)
        except UsageError:
            ours = False
        theirs = keygen.doubt(content, "web1", signature, b"hello\n") is None
        wrong += [content] if ours and not theirs else []
        both, alone = both + (ours and theirs), alone + (theirs and not ours)
    return wrong, both, alone


def test_the_strict_reader_accepts_nothing_that_ssh_keygen_refuses(keys: Path) -> None:
    wrong, both, alone = _differences(keys, 300)
    print(f"300 files: {both} accepted by both, {alone} by ssh-keygen alone")
    assert wrong == []
    assert both > 20


@pytest.mark.chaos
def test_the_strict_reader_accepts_nothing_that_ssh_keygen_refuses_at_length(keys: Path) -> None:
    wrong, both, _ = _differences(keys, 20_000)
    assert wrong == []
    assert both > 2000


def test_ssh_keygen_decides_where_it_is(signed: Path, keys: Path, tmp_path: Path) -> None:
    """A key of another kind is no reason to refuse the file, and what ssh-keygen says is told."""
    key = (keys / "host.pub").read_text()
    (tmp_path / "rsa").write_text(f'db1 ssh-rsa AAAA\nweb1\tnamespaces="bundle@vmsonar"\t{key}')
    report = verify_path(signed, trust=read_trust(tmp_path / "rsa", "web1"))
    assert report.ok, report.findings
    (tmp_path / "odd").write_text(f"web1 valid-before=20990101Z {key}")
    demand = ["--allowed-signers", tmp_path / "odd", "--identity", "web1"]
    refused = vmsonar("verify", signed, *demand)
    assert refused.returncode == 1
    assert b"untrusted_signer" in refused.stdout
    assert b"(ssh-keygen: line 1: bad " in refused.stdout, refused.stdout
    for identity in ("", "a\nb", "\x1b[2J"):
        assert vmsonar("verify", signed, *demand[:3], identity).returncode == 2


def test_without_ssh_keygen_the_strict_reader_decides(
    signed: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keygen, "find", classmethod(lambda _: None))
    assert verify_path(signed, trust=read_trust(keys / "allowed", "web1")).ok
    report = verify_path(signed, trust=read_trust(keys / "allowed", "web2"))
    assert [finding.code.value for finding in report.findings] == ["untrusted_signer"]
    (tmp_path / "odd").write_text("web1 ssh-rsa AAAA\n")
    with pytest.raises(UsageError, match=r"line 1: .*ssh-keygen, which might know better, is not here"):
        read_trust(tmp_path / "odd", "web1")


def test_another_ssh_keygen_on_the_path_is_not_asked(
    signed: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh-keygen").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert verify_path(signed, trust=read_trust(keys / "allowed", "web2")).ok is False
    assert not (tmp_path / "asked").exists()


def test_an_ssh_keygen_that_is_too_old_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "ssh-keygen").write_text(
        "#!/bin/sh\necho 'unknown option -- Y\nusage: ssh-keygen' >&2\nexit 1\n"
    )
    (tmp_path / "ssh-keygen").chmod(0o755)
    assert Keygen.find(str(tmp_path)) is None
    assert Keygen.find(str(tmp_path / "nowhere")) is None
    assert Keygen.find() is not None


def _renamed(bundle: Path, output: Path, folder: str) -> Path:
    """The same bundle with another name of its folder in every header."""
    source = BundleSource(bundle)
    content = bytearray(bundle.read_bytes())
    for name, member in source.walked.members.items():
        content[member.offset - 512 : member.offset] = bag.encode_header(
            bag.Header(folder, name, member.size)
        )
    source.close()
    output.write_bytes(content)
    return output


def test_a_renamed_folder_shows_and_an_old_bundle_has_no_name_to_compare(
    signed: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = read_trust(keys / "allowed", "web1")
    changed = _renamed(signed, tmp_path / "x.tar", "another-vm_x_y_z")
    report = verify_path(changed, trust=trust)
    assert not report.ok
    assert [finding.path for finding in report.findings if finding.code.value == "corrupt"] == ["bundle.json"]
    assert "now it is another-vm_x_y_z" in report.findings[0].detail
    shutil.copy(signed, tmp_path / "renamed-file.tar")
    assert verify_path(tmp_path / "renamed-file.tar", trust=trust).ok, "the file may be called anything"


def test_a_bundle_of_an_earlier_version_stays_valid(
    archive: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msgspec.structs, "replace", lambda record, **_: record)
    made = bundle_to_file(archive, tmp_path, options=BundleOptions(sign=keys / "host"))
    monkeypatch.undo()
    source = BundleSource(Path(made.output))
    assert source.record().folder is None
    source.close()
    assert verify_path(Path(made.output), trust=read_trust(keys / "allowed", "web1")).ok


def test_keys_that_cannot_sign(archive: Path, keys: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", tmp_path / "rsa"], check=True)
    for key, word in (
        (tmp_path / "rsa", "not an ed25519"),
        (keys / "allowed", "OpenSSH"),
        (tmp_path / "no", "No such"),
    ):
        with pytest.raises(VmsonarError, match=word):
            bundle_to_file(archive, tmp_path / "x.tar", options=BundleOptions(sign=key))
    assert not list(tmp_path.glob("x.tar*"))


@requires("root")
def test_key_that_only_root_can_read(keys: Path, tmp_path: Path) -> None:
    """The tree is walked without root's rights; the key is in another process, which has them."""
    import os

    from tests.making.bundles import make_archive

    root = make_archive(tmp_path / "archive")
    for path in [root, *root.rglob("*")]:
        os.chown(path, 54321, 54321)
    done = vmsonar("bundle", "--archive", root, "-o", tmp_path / "x.tar", "--sign", keys / "host")
    assert done.returncode == 0, done.stderr
    assert verify_path(tmp_path / "x.tar").signed_by is not None
