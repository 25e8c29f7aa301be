"""The journal vouches for archive.json, the namespace and each of its own lines; old journals stay what they were."""

import json
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.bundle.make import BundleOptions, bundle_to_file
from vmsonar_archive.format.journal import GENESIS, JournalEntry, Ledger, line_hash
from vmsonar_archive.format.lines import check_line
from vmsonar_archive.records.fields import Sensitivity
from vmsonar_archive.verify.path import verify_path

from tests.making.archives import check, codes, make_archive, open_writer, record, segments
from vmsonar.cli import run


def lines_of(root: Path) -> list[bytes]:
    return (root / "journal.jsonl").read_bytes().splitlines()


def age(root: Path) -> None:
    """Makes the journal one of the first version: no checksums, nobody vouched for."""
    head, old = GENESIS, []
    for line in lines_of(root):
        entry = msgspec.json.decode(line, type=JournalEntry)
        plain = msgspec.structs.replace(entry, identity=None, namespace=None, prev=head)
        old.append(msgspec.json.encode(plain))
        head = line_hash(old[-1])
    (root / "journal.jsonl").write_bytes(b"".join(line + b"\n" for line in old))


def rename_host(root: Path) -> None:
    """A change that leaves archive.json a right one."""
    path = root / "archive.json"
    path.write_text(path.read_text().replace('"vm"', '"wm"'))


def test_every_line_has_a_checksum_and_vouches(tmp_path):
    root = make_archive(tmp_path / "a")
    for line in lines_of(root):
        check_line(line)
        assert {"identity", "namespace"} <= json.loads(line).keys()
    assert check(root).findings == []


def test_an_old_journal_verifies_as_before_and_gets_them_with_its_next_line(tmp_path):
    root = make_archive(tmp_path / "a")
    age(root)
    old = lines_of(root)
    assert check(root).findings == []
    rename_host(root)
    assert check(root).findings == [], "nobody vouched for it"
    writer = open_writer(root)
    record(writer, 3)
    writer.close()
    assert lines_of(root)[: len(old)] == old
    new = lines_of(root)[len(old)]
    check_line(new)
    assert json.loads(new)["prev"] == line_hash(old[-1])
    assert check(root).findings == []
    rename_host(root)
    (root / "archive.json").write_text((root / "archive.json").read_text().replace('"wm"', '"xm"'))
    assert codes(check(root)) == {"corrupt"}


def test_lines_of_an_older_writer_may_follow(tmp_path):
    root = make_archive(tmp_path / "a")
    head = line_hash(lines_of(root)[-1])
    last = msgspec.json.decode(lines_of(root)[-1], type=JournalEntry)
    plain = msgspec.structs.replace(last, identity=None, namespace=None, prev=head)
    with (root / "journal.jsonl").open("ab") as journal:
        journal.write(msgspec.json.encode(plain) + b"\n")
    assert check(root).findings == []


@pytest.mark.parametrize("name", ["archive.json", "namespace"])
def test_a_changed_file_is_not_vouched_for_by_later_lines(tmp_path, name):
    root = make_archive(tmp_path / "a")
    rename_host(root)
    if name == "namespace":
        make_archive(tmp_path / "b")
        (root / "archive.json").write_text((root / "archive.json").read_text().replace('"wm"', '"vm"'))
        (root / "namespace").write_bytes((tmp_path / "b" / "namespace").read_bytes())
    writer = open_writer(root)
    assert [finding.path for finding in writer.misfits()] == [name]
    record(writer, 3)
    writer.close()
    assert [finding.path for finding in check(root).findings] == [name]
    # Without the namespace an archive is as whole as before.
    assert check(root).ok == (name == "namespace")


def test_a_changed_drop_line_removes_nothing(tmp_path):
    root = make_archive(tmp_path / "a")
    (path,) = segments(root)
    entry = msgspec.json.decode(lines_of(root)[-1], type=JournalEntry)
    ledger = Ledger.of(lines_of(root))
    dropped = msgspec.structs.replace(entry, op="drop", path="2026/11/16/sample-140001-2.jsonl.zst")
    writer = open_writer(root)
    writer._house.journal.append(dropped)
    writer.close()
    content = (root / "journal.jsonl").read_bytes()
    (root / "journal.jsonl").write_bytes(
        content.replace(
            b'"drop","path":"2026/11/16/sample-140001', b'"drop","path":"2026/11/16/sample-140000'
        )
    )
    writer = open_writer(root)
    writer.close()
    assert path.exists()
    assert ledger.current.keys() == Ledger.of(lines_of(root)).current.keys()
    assert codes(check(root)) == {"chain_broken"}


def test_a_newline_that_was_changed_is_not_a_torn_end(tmp_path):
    root = make_archive(tmp_path / "a")
    content = (root / "journal.jsonl").read_bytes()
    (root / "journal.jsonl").write_bytes(content[:-1] + b"\x0b")
    report = check(root)
    assert not report.ok
    assert "chain_broken" in codes(report)
    (root / "journal.jsonl").write_bytes(content[:-20])
    assert "torn_tail" in codes(check(root))


def test_a_bundle_of_a_changed_archive_says_so(tmp_path):
    root = make_archive(tmp_path / "a")
    rename_host(root)
    bundled = bundle_to_file(root, tmp_path / "b.tar")
    assert [(one.code.value, one.path) for one in bundled.findings] == [("corrupt", "archive.json")]
    assert not verify_path(tmp_path / "b.tar").ok


def test_a_redacted_bundle_vouches_for_its_own_identity_only(tmp_path):
    root = make_archive(tmp_path / "a")
    options = BundleOptions(redact=frozenset({Sensitivity.HOST}), redact_key=b"k" * 32)
    assert bundle_to_file(root, tmp_path / "b.tar", options=options).ok
    assert verify_path(tmp_path / "b.tar").ok
    content = (tmp_path / "b.tar").read_bytes()
    told = json.loads(lines_of(root)[0])
    assert b'"identity":' in content
    assert told["identity"].encode() not in content
    assert b'"namespace"' not in content
    assert told["namespace"].encode() not in content


def test_status_and_doctor_tell(tmp_path, capsys):
    root = make_archive(tmp_path / "a")
    for command in ("status", "doctor"):
        run([command, "--archive", str(root), "--json"])
        assert "archive.json is not what it was" not in capsys.readouterr().out
    rename_host(root)
    assert run(["status", "--archive", str(root), "--json"]) == 1
    assert any(
        "archive.json is not what it was" in text for text in json.loads(capsys.readouterr().out)["problems"]
    )
    run(["doctor", "--archive", str(root), "--json"])
    assert "archive.json is not what it was" in capsys.readouterr().out
