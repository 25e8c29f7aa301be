"""Awkward archives and arguments: a clear sentence each, and the right exit code."""

import json
from pathlib import Path

import pytest
from vmsonar_archive.records import EventRow, GapRow

from tests.making.machines import Box, Load, Machine, box_id
from tests.making.scenes import SECONDS, healthy, serial
from vmsonar.cli import run


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run(["inspect", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_folder_without_archives(tmp_path: Path, capsys) -> None:
    code, out, err = ask(capsys, tmp_path)
    assert (code, out) == (3, "")
    assert err == (
        f"vmsonar: no archive and no bundle in {tmp_path}: give the folder that holds archive.json, or a bundle\n"
    )


def test_a_path_that_does_not_exist(tmp_path: Path, capsys) -> None:
    code, _, err = ask(capsys, tmp_path / "nowhere")
    assert code == 3
    assert err.startswith(f"vmsonar: {tmp_path}/nowhere does not exist")


def test_an_archive_without_samples(tmp_path: Path, capsys) -> None:
    root = Machine(loads=[]).record(tmp_path / "archive", -1)
    code, out, _ = ask(capsys, root)
    assert code == 0
    assert "The archive holds no samples." in out


@pytest.mark.parametrize(
    "view", ["jobs", "containers", "gpus", "users", "programs", "timeline", "advice", "gaps"]
)
def test_every_view_of_an_archive_without_samples(view: str, tmp_path: Path, capsys) -> None:
    root = Machine(loads=[]).record(tmp_path / "archive", -1)
    code, out, err = ask(capsys, root, view)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) >= 4


def test_one_sample(tmp_path: Path, capsys) -> None:
    root = serial().record(tmp_path / "archive", 0)
    code, out, _ = ask(capsys, root)
    assert code == 0
    assert "One sample, at 2026-11-16 08:00:00 UTC: rates need two." in out
    assert "Too little was recorded to advise a size." in out


def test_a_future_format(tmp_path: Path, capsys) -> None:
    root = serial().record(tmp_path / "archive", 0)
    identity = json.loads((root / "archive.json").read_text())
    (root / "archive.json").write_text(json.dumps({**identity, "format": 99}))
    code, _, err = ask(capsys, root)
    assert code == 3
    assert "is written in format 99" in err
    assert "install a newer vmsonar" in err


def test_one_damaged_file_is_named_and_the_rest_answered(tmp_path: Path, capsys) -> None:
    root = healthy().record(tmp_path / "archive", 2 * 3600)
    segment = sorted(root.glob("*/*/*/sample-*"))[0]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    code, out, err = ask(capsys, root, "gaps")
    assert code == 1
    assert f"error: {segment}: " in err
    assert "damage" in out
    code, out, err = ask(capsys, root)
    assert "./simulate" in out
    assert err.startswith(f"error: {segment}: "), "also where the screen has no room for gaps"


def test_one_damaged_archive_among_many(tmp_path: Path, capsys) -> None:
    for name in ("a", "b"):
        machine = healthy()
        machine.hostname = name
        machine.record(tmp_path / name, 60)
    (tmp_path / "b" / "archive.json").write_text("{}")
    code, out, _ = ask(capsys, tmp_path)
    assert code == 1
    assert "complete" in out or "a " in out
    code, out, _ = ask(capsys, tmp_path, "gaps", "--json")
    assert [row["kind"] for row in json.loads(out)["rows"]] == ["damage"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sort", "colour"], "cannot sort by 'colour'"),
        (["--json", "--csv"], "exclude each other"),
        (["--from", "soon"], "not a time: 'soon'"),
        (["--from", "999999w"], "not a time: '999999w' is before"),
        (["--tz", "Mars/Olympus"], "no such time zone"),
        (["--command", "("], "not a regular expression"),
        (["--min-runtime", "5"], "not a duration"),
        (["--country", "XXX"], "no emission factor for country 'XXX'"),
        (["jobs", "gaps"], "one view at a time"),
    ],
)
def test_a_wrong_argument_is_a_sentence(arguments: list[str], sentence: str, known: Path, capsys) -> None:
    code, _, err = ask(capsys, known, *arguments)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1


HOSTILE = "\x1b[31mred\x1b]0;owned\x07 [bold]x[/bold] <script>alert(1)</script> \u202egnp.exe :smile:"


def test_hostile_names_come_out_as_text(tmp_path: Path, capsys) -> None:
    load = Load(100, HOSTILE, user="[red]eve\x1b[0m", begin=0, cores=1.0)
    machine = Machine(loads=[load], os_name="[link=http://x]os[/link]\r\n")
    root = machine.record(tmp_path / "archive", SECONDS)
    for view in ("summary", "jobs", "users", "programs", "advice"):
        code, out, _ = ask(capsys, root, view)
        assert code == 0
        assert not any(ord(char) < 32 and char != "\n" for char in out)
        assert "\u202e" not in out
    _, out, _ = ask(capsys, root, "--job", "100")
    assert "[red]eve\\x1b[0m" in out
    assert "\\x1b[31mred\\x1b]0;owned\\x07 [bold]x[/bold] <script>alert(1)" in out


def test_no_name_of_anything_reaches_the_terminal_as_it_is(tmp_path: Path, capsys) -> None:
    box = Box(box_id(1), HOSTILE, image=HOSTILE, user=HOSTILE, labels={"a": HOSTILE}, oom_at=300)
    machine = Machine(
        loads=[Load(100, HOSTILE, user=HOSTILE, begin=0, end=300, cores=1.0, container=box.container_id)],
        boxes=[box],
        gaps=[(100, GapRow(collector=HOSTILE, reason=HOSTILE, detail=HOSTILE))],
        events=[(200, EventRow(event_type=HOSTILE, detail=HOSTILE, container_id=box.container_id))],
        os_name=HOSTILE,
        instance_type=HOSTILE,
    )
    machine.record(tmp_path / "many" / "one", 600)
    machine.machine_id = "f" * 32
    machine.record(tmp_path / "many" / "two", 600)
    one = tmp_path / "many" / "one"
    views = ("summary", "containers", "gaps", "timeline", "advice", "users")
    for arguments in (*((one, view) for view in views), (one, "--job", "100"), (tmp_path / "many",)):
        code, out, err = ask(capsys, *arguments)
        assert (code, err) == (0, "")
        assert not any(ord(char) < 32 and char != "\n" for char in out)
        assert "\u202e" not in out
        assert "\\x1b[31mred" in out or "timeline" in arguments or "advice" in arguments


def test_a_cell_never_begins_like_a_formula(tmp_path: Path, capsys) -> None:
    machine = Machine(loads=[Load(100, "=cmd|' /C calc'!A0", user="@eve", begin=0, cores=1.0)])
    root = machine.record(tmp_path / "archive", 60)
    _, out, _ = ask(capsys, root, "jobs", "--csv")
    assert "'=cmd|' /C calc'!A0" in out
    assert "'@eve" in out


def test_a_regular_expression_cannot_hang(tmp_path: Path, capsys) -> None:
    machine = Machine(loads=[Load(100, "a" * 5000 + "!", begin=0, cores=1.0)])
    root = machine.record(tmp_path / "archive", 60)
    code, out, _ = ask(capsys, root, "jobs", "--json", "--command", "^(a+)+$")
    assert code == 1
    assert json.loads(out)["rows"] == []
    code, _, err = ask(capsys, root, "jobs", "--command", "((a{1,999}){1,999}){1,999}")
    assert code == 2
    assert "not a regular expression" in err
