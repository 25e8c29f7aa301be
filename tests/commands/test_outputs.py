"""What a command writes never costs what is there: inputs, archives, files of others."""

import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.write.outputs import CSV, whole

from vmsonar import cli
from vmsonar.config.schema import Collectors, Config
from vmsonar.daemon.once import append_one

pytestmark = pytest.mark.slow

FEW = Config(collectors=Collectors(process="none", gpu="none", container="none", energy="none"))
QUERY = "SELECT seq, kind FROM (SELECT seq, 'a' AS kind FROM samples)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive, two bundles of it and a lake."""
    folder = tmp_path_factory.mktemp("outputs")
    for _ in range(2):
        append_one(FEW, folder / "archive")
    for name in ("a.tar", "b.tar"):
        assert run("bundle", "--archive", folder / "archive", "-o", folder / name) == 0
    assert run("export", folder / "a.tar", "--to", "parquet", "-o", folder / "lake") == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def run(*line: Any) -> int:
    return cli.run([str(part) for part in line])


def everything(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refused(capsys: pytest.CaptureFixture[str], *line: Any) -> str:
    """The one line of a command that may not write there."""
    capsys.readouterr()
    assert run(*line) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


WRITERS: dict[str, Callable[[str], list[str]]] = {
    "page": lambda out: ["inspect", "a.tar", "b.tar", "--html", out],
    "csv": lambda out: ["sql", "a.tar", "b.tar", QUERY, "-o", out],
    "json": lambda out: ["sql", "a.tar", "b.tar", QUERY, "--json", "-o", out],
    "parquet": lambda out: ["sql", "a.tar", "b.tar", QUERY, "--format", "parquet", "-o", out],
}


@pytest.mark.parametrize("out", ["a.tar", "./b.tar", "link.tar", "hard.tar", "archive/../a.tar"])
@pytest.mark.parametrize("writer", WRITERS)
def test_no_report_is_written_over_what_it_reads(
    place: Path, capsys: pytest.CaptureFixture[str], writer: str, out: str
) -> None:
    (place / "link.tar").symlink_to("a.tar")
    os.link(place / "b.tar", place / "hard.tar")
    before = everything(place)
    assert "is what is read" in refused(capsys, *WRITERS[writer](out), "--force")
    assert everything(place) == before


@pytest.mark.parametrize("out", ["archive/archive.json", "archive/new", "archive/2026/new", "into/new"])
@pytest.mark.parametrize("writer", [*WRITERS, "bundle", "recover", "export"])
def test_nothing_is_written_into_an_archive(
    place: Path, capsys: pytest.CaptureFixture[str], writer: str, out: str
) -> None:
    (place / "into").symlink_to("archive")
    lines = {
        "bundle": ["bundle", "--archive", "archive", "-o", out],
        "recover": ["recover", "a.tar", "-o", out],
        "export": ["export", "a.tar", "--to", "csv", "-o", out],
    }
    line = lines[writer] if writer in lines else [*WRITERS[writer](out), "--force"]
    before = everything(place)
    assert "lies inside the archive" in refused(capsys, *line)
    assert everything(place) == before


@pytest.mark.parametrize("layout", ["csv", "parquet", "sonar"])
@pytest.mark.parametrize("out", ["archive", "lake", "lake/kind=samples"])
def test_no_export_goes_into_an_archive_or_the_lake_that_it_reads(
    place: Path, capsys: pytest.CaptureFixture[str], layout: str, out: str
) -> None:
    before = everything(place)
    refused(capsys, "export", "archive", "lake", "--to", layout, "-o", out, "--force")
    assert everything(place) == before


def test_a_lake_in_which_a_query_looks_keeps_its_files(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(place)
    file = next(Path("lake").rglob("*.parquet"))
    for out in (file, "lake/kind=samples/new.parquet", "lake/new.parquet"):
        for path in ("lake", "a.tar") if str(out) != "lake/new.parquet" else ("lake",):
            refused(capsys, "sql", path, QUERY, "--format", "parquet", "-o", out, "--force")
    assert everything(place) == before


@pytest.mark.parametrize("writer", WRITERS)
def test_bundles_in_a_folder_are_read_too_and_the_folder_may_take_the_report(
    place: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    bundles = place / "bundles"
    bundles.mkdir()
    shutil.copy(place / "a.tar", bundles)
    first, *_, option, _out = WRITERS[writer]("")
    middle = [QUERY] if first == "sql" else []
    form = {"json": ["--json"], "parquet": ["--format", "parquet"]}.get(writer, [])
    line = [first, "bundles", *middle, *form, option]
    assert "is what is read" in refused(capsys, *line, "bundles/a.tar", "--force")
    assert run(*line, "bundles/report") == 0


def test_settings_that_are_read_are_inputs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = place / "rules.yaml"
    rules.write_text("")
    line = ["inspect", "a.tar", "--rules", rules, "--html", rules, "--force"]
    assert "is what is read" in refused(capsys, *line)


@pytest.mark.parametrize("writer", WRITERS)
def test_what_vmsonar_did_not_write_stays_unless_told(
    place: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    others = {
        "notes": b"Dear Sir,\r\nthe meeting is at noon.\r\n",
        "notes.csv": b"a;b\n1;2\n",
        "page.html": b"<!doctype html><title>mine</title>",
        "data.json": b'{"mine": 1}\n',
        "data.parquet": b"PAR1" + bytes(30) + b"\x08\0\0\0PAR1",
        "other.tar": (place / "a.tar").read_bytes(),
        "binary": bytes(range(256)) * 300,
    }
    for name, content in others.items():
        Path(name).write_bytes(content)
        assert "--force" in refused(capsys, *WRITERS[writer](name))
        assert Path(name).read_bytes() == content
    assert run(*WRITERS[writer]("notes"), "--force") == 0
    assert Path("notes").read_bytes() != others["notes"]


@pytest.mark.parametrize("writer", WRITERS)
def test_an_earlier_report_of_the_same_kind_is_replaced(
    place: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    for name in WRITERS:
        assert run(*WRITERS[name](f"report-{name}")) == 0
    Path("empty").touch()
    assert run(*WRITERS[writer]("empty")) == 0
    assert run(*WRITERS[writer](f"report-{writer}")) == 0
    for name in set(WRITERS) - {writer}:
        assert "--force" in refused(capsys, *WRITERS[writer](f"report-{name}"))


def test_a_long_answer_in_csv_is_known_again(tmp_path: Path) -> None:
    rows = "".join(f'{number},"a ""word"",\r\nand more"\r\n' for number in range(9000))
    (tmp_path / "long").write_text("number,text\r\n" + rows, newline="")
    with (tmp_path / "long").open("rb") as file:
        assert CSV.is_one(file)


def test_an_export_replaces_its_own_files_and_no_others(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for layout in ("csv", "sonar"):
        line = ["export", "a.tar", "--to", layout, "-o", layout]
        assert run(*line) == 0
        assert run(*line) == 0
        file = sorted(path for path in Path(layout).rglob("*") if path.is_file())[-1]
        file.write_text("mine\n")
        before = everything(Path(layout))
        assert "--force" in refused(capsys, *line)
        assert everything(Path(layout)) == before
        assert run(*line, "--force") == 0


@pytest.mark.parametrize("writer", WRITERS)
def test_a_report_has_the_rights_that_the_umask_leaves(place: Path, writer: str) -> None:
    before = os.umask(0o027)
    try:
        assert run(*WRITERS[writer]("report")) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("report").stat().st_mode) == 0o640


@pytest.mark.parametrize("writer", WRITERS)
def test_a_report_that_fails_leaves_the_earlier_one(
    place: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    assert run(*WRITERS[writer]("report")) == 0
    before = everything(place)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert run(*WRITERS[writer]("report")) == 3
    monkeypatch.undo()
    assert everything(place) == before


def test_a_pipe_is_written_as_it_is(place: Path) -> None:
    os.mkfifo("pipe")
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.append(Path("pipe").read_bytes()))
    reader.start()
    assert run(*WRITERS["csv"]("pipe")) == 0
    reader.join()
    assert seen[0].startswith(b"seq,kind\r\n")
    assert run(*WRITERS["csv"]("/dev/null")) == 0


def test_a_link_leads_to_the_file_and_stays_a_link(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("latest").symlink_to("report")
    assert run(*WRITERS["csv"]("latest")) == 0
    assert Path("latest").is_symlink()
    assert Path("report").is_file()
    if os.geteuid() == 0:
        os.chown("latest", 12345, -1, follow_symlinks=False)
        assert "link of uid 12345" in refused(capsys, *WRITERS["csv"]("latest"))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    place: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    Path("folder").mkdir()
    assert "is a folder" in refused(capsys, *WRITERS[writer]("folder"))
    assert run(*WRITERS[writer]("nowhere/report")) == 3


def test_tables_are_not_kept_in_an_archive(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMSONAR_CACHE", str(place / "archive" / "cache"))
    assert "lies inside the archive" in refused(capsys, "sql", "a.tar", QUERY)


def test_an_interrupted_file_is_not_there(tmp_path: Path) -> None:
    def interrupted() -> None:
        with whole(tmp_path / "file") as sink:
            sink.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
