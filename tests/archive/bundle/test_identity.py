"""Whoever makes a bundle chooses the words in it: none becomes a path, and each identity has its grammar."""

import json
from pathlib import Path

import pytest
from vmsonar_archive.format.bag import BundledFile, parse_record
from vmsonar_archive.format.identity import parse_identity
from vmsonar_archive.format.lines import BadLine, decode_sample, decode_stamp
from vmsonar_archive.system.errors import FormatError
from vmsonar_archive.system.files import Refused, beneath

from tests.archive.bundle.forged import ARCHIVE, forged_archive, forged_bundle
from vmsonar.cli import run

HOSTILE = [
    ("archive", "../../outside"),
    ("archive", "/outside"),
    ("archive", "a\0b"),
    ("archive", "x" * 5000),
    ("archive", ""),
    ("archive", ".."),
    ("archive", ARCHIVE + "\n"),
    ("machine_id", "../../outside"),
    ("machine_id", "a\nb"),
    ("machine_id", ""),
    ("instance_id", "../../outside"),
    ("instance_id", "i-1\r\nX-Header: 1"),
    ("instance_id", "i" * 5000),
    ("hostname_short", "../../outside"),
    ("hostname_short", ".."),
    ("hostname_short", "vm\x1b[31m"),
    ("hostname_full", "a/b"),
    ("hostname_full", "vm\u202egro.elpmaxe"),
    ("hostname_full", "h" * 5000),
]
COMMANDS = [
    ["export", "--to", "parquet", "-o", "out"],
    ["export", "--to", "csv", "-o", "out"],
    ["export", "--to", "sonar", "-o", "out"],
    ["inspect"],
    ["inspect", "--html", "out.html"],
    ["recover", "-o", "saved"],
]


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, deep enough that what climbs out of it still lands where it can be seen."""
    deep = tmp_path / "1" / "2" / "3" / "4" / "5"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    monkeypatch.setenv("VMSONAR_CACHE", str(deep / "cache"))
    return deep


@pytest.mark.parametrize(("field", "value"), HOSTILE, ids=lambda text: repr(text)[:30])
def test_each_field_has_its_grammar(field: str, value: str) -> None:
    good = {"format": 1, "archive": ARCHIVE, "machine_id": "0" * 32, "created": "2026-11-16T00:00:00Z"}
    assert parse_identity(json.dumps(good).encode(), "here").archive == ARCHIVE
    with pytest.raises(FormatError, match=f"{field} has not the form"):
        parse_identity(json.dumps({**good, field: value}).encode(), "here")


@pytest.mark.parametrize(("field", "value"), HOSTILE[::8], ids=lambda text: repr(text)[:30])
def test_every_command_refuses_it_and_writes_nothing_outside(
    field: str, value: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = forged_bundle(place / "hostile", **{"archive": ARCHIVE, field: value})
    for name, *options in [["sql", given.name, "SELECT count(*) FROM node"], *COMMANDS]:
        arguments = options if name == "sql" else [given.name, *options]
        code = run([name, *arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        # What can be saved is saved, into an archive with an identity of its own.
        assert code in ((0, 1) if name == "recover" else (1, 3)), (name, said)
        assert "\x1b" not in said.out + said.err
        assert f"{field} has not the form" in said.out + said.err, (name, said)
        assert len(said.out + said.err) < 1000
    assert json.loads((place / "saved" / "archive.json").read_text())["machine_id"] == "unknown"
    assert run(["verify", given.name]) == 1
    assert field in capsys.readouterr().out
    assert tree(place.parents[4]) == {"1", "1/2", "1/2/3", "1/2/3/4", "1/2/3/4/5"} | {
        f"1/2/3/4/5/{name}" for name in tree(place)
    }


@pytest.mark.parametrize(
    ("field", "value"), [("archive", "../../outside"), ("hostname_short", "a/b"), ("machine_id", "..")]
)
def test_folders_are_refused_as_bundles_are(
    field: str, value: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged_archive(place / "hostile", **{field: value})
    before = tree(place)
    for command in (["bundle", "--archive", "hostile", "-o", "b.tar"], ["derive", "--archive", "hostile"]):
        assert run(command) == 3
        assert field in capsys.readouterr().err
    config = place / "config.yaml"
    config.write_text("forward:\n  to: http://127.0.0.1:9/\n")
    assert run(["forward", "--archive", "hostile", "--config", "config.yaml", "--once"]) in (1, 2, 3)
    assert "Traceback" not in capsys.readouterr().err
    assert tree(place) - before <= {"config.yaml"}


@pytest.mark.parametrize(
    "fields",
    [
        {"machine_id": "00000000-0000-0000-0000-000000000000"},
        {"machine_id": "unknown"},
        {"machine_id": "id-0123456789abcdef", "instance_id": "id-0123456789abcdef"},
        {"hostname_short": "(none)", "hostname_full": "(none)"},
        {"hostname_short": "", "hostname_full": ".example"},
        {"hostname_full": "büro 7.example.org"},
        {"instance_id": "i-0abcdef0123456789", "hostname_full": None},
        {"instance_id": "iid-datasource-nocloud_7.local"},
    ],
    ids=str,
)
def test_what_the_product_writes_and_what_is_merely_odd_is_read(
    fields: dict[str, str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = forged_bundle(place / "odd", archive=ARCHIVE, **fields)
    assert run(["verify", given.name]) == 0, capsys.readouterr()
    assert run(["export", given.name, "--to", "parquet", "-o", "lake"]) == 0
    assert json.loads((place / "odd" / "archive.json").read_text()).items() >= fields.items()


@pytest.mark.parametrize("word", ["../../x", "a b", "a\nb", "r" * 65, "\x1b[31m"], ids=repr)
@pytest.mark.parametrize("field", ["run", "boot"])
def test_a_record_of_an_impossible_run_or_boot_is_none(field: str, word: str) -> None:
    stamp = {"time": "2026-11-16T14:00:00Z", "seq": 1, "run": "0" * 32, "boot": ARCHIVE, "boottime": 1}
    line = json.dumps({**stamp, field: word}, separators=(",", ":")).encode()
    for decode in (decode_stamp, decode_sample):
        with pytest.raises(BadLine, match=f"{field} has not the form"):
            decode(line)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "2026/11/16/../../x.parquet", "archive.json"])
def test_bundle_json_speaks_of_files_of_an_archive_only(path: str) -> None:
    file = {"path": "2026/11/16/sample-140000-1.jsonl.zst", "operations": [], "bytes": 1, "sha256": "0" * 64}
    good = {"format": 1, "archive": ARCHIVE, "head": "0" * 64, "files": [file]}
    assert parse_record(json.dumps(good).encode(), "here").files == [BundledFile(**file)]
    for bad in (
        {"files": [{**file, "path": path}]},
        {"files": [{**file, "source": path}]},
        {"left_out": [path]},
    ):
        with pytest.raises(FormatError, match="no file of an archive"):
            parse_record(json.dumps({**good, **bad}).encode(), "here")


@pytest.mark.parametrize(
    "word",
    ["..", ".", "", "/x", "x/", "a//b", "a/../b", "a\0b", "a\nb", "x" * 256, "é" * 128, "\ud800"],
    ids=ascii,
)
def test_no_word_leads_out_of_a_folder(word: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no path inside a folder"):
        beneath(tmp_path, "kind=x", word)
    assert beneath(tmp_path, "a/b", "c=d e") == tmp_path / "a" / "b" / "c=d e"
