"""Every example of docs/analysis.md is run as it stands there, over bundles, a lake and an archive of a known world."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from vmsonar_archive.parquet.derive import derive_due

from tests.making.worlds import make, make_days, make_history
from tests.parts import need
from vmsonar.cli import run

# Spark's own warnings are not ours.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PAGE = Path(__file__).parents[3] / "docs" / "analysis.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Snippet:
    """One fenced block of the page."""

    number: int
    language: str
    text: str


def snippets() -> list[Snippet]:
    found = _BLOCK.findall(PAGE.read_text())
    return [Snippet(number, language, text) for number, (language, text) in enumerate(found)]


def named(snippet: Snippet) -> str:
    return f"{snippet.number}-{snippet.language}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page takes for granted: an archive with yesterday's tables, bundles, more bundles, and a lake."""
    folder = tmp_path_factory.mktemp("page")
    make_days(folder / "archive")
    list(derive_due(folder / "archive", datetime(2026, 11, 16, 1, tzinfo=UTC)))
    make_history(folder / "one")
    make(folder / "two", machine_id="2" * 32)
    for name, target in (("archive", "bundles"), ("one", "bundles"), ("two", "more-bundles")):
        (folder / target).mkdir(exist_ok=True)
        assert (
            run(["bundle", "--archive", str(folder / name), "-o", str(folder / target / f"{name}.tar")]) == 0
        )
    bundles = [str(folder / "bundles"), str(folder / "more-bundles")]
    assert run(["export", *bundles, "--to", "parquet", "-o", str(folder / "lake")]) == 0
    return folder


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(world)
    return world


def at_home(text: str, here: Path) -> str:
    return text.replace("/var/lib/vmsonar", str(here / "archive"))


@pytest.mark.parametrize("snippet", [one for one in snippets() if one.language == "sh"], ids=named)
def test_a_command(snippet: Snippet, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in commands(at_home(snippet.text, here)):
        words = shlex.split(line, comments=True)
        assert words[0] == "vmsonar"
        if "spark" in words:
            need("spark")
        assert run(words[1:]) == 0, capsys.readouterr().err
    shown(snippet, [line.split() for line in capsys.readouterr().out.splitlines()])


def commands(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def shown(snippet: Snippet, lines: list[list[str]]) -> None:
    """Where a block of text follows, it is what came out."""
    following = snippets()[snippet.number + 1 :][:1]
    if following and following[0].language == "text":
        assert lines == [line.split() for line in following[0].text.splitlines()]


@pytest.mark.parametrize("snippet", [one for one in snippets() if one.language == "sql"], ids=named)
def test_duckdb_alone(snippet: Snippet, here: Path) -> None:
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    rows = connection.execute(snippet.text).fetchall()
    shown(snippet, [[str(value) for value in row] for row in rows])


@pytest.mark.parametrize("snippet", [one for one in snippets() if one.language == "python"], ids=named)
def test_python(snippet: Snippet, here: Path) -> None:
    text = at_home(snippet.text, here)
    if "spark" in text:
        need("spark")
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, str(PAGE), "exec"), names)
    told = re.findall(r"print\(.*\)  # (.+)$", text, re.M)
    assert printed.getvalue().splitlines() == told


def test_every_way_is_shown() -> None:
    text = PAGE.read_text()
    for word in (
        "duckdb",
        "pandas",
        "polars",
        "--engine spark",
        "open_tables",
        "vmsonar sql",
        "vmsonar export",
    ):
        assert word in text.lower(), word
    assert {one.language for one in snippets()} == {"sh", "sql", "python", "text"}
