"""Every example of every page and of every help is a command line that exists; those that need no service are run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making.machines import Box, Load, Machine, box_id
from tests.making.scenes import healthy
from vmsonar import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/recipes/*.sh"))]
#: These answer from an archive or bundle alone; tests/inspect/tables/test_analysis_page.py runs analysis.md.
RUN = {"inspect", "sql", "verify", "bundle", "status", "sysinfo", "derive"}
#: What needs another machine, a secret, an engine or a minute.
ELSEWHERE = (
    "https:",
    "s3:",
    "@/",
    "@1",
    "--sign",
    "--follow",
    "--allowed-signers",
    "spark",
    "--head",
    "-o -",
    "lake/",
)


CALL = re.compile(r"(^|sudo |-u vmsonar |ssh vm |&& |\| )vmsonar [a-z]")


def words_of(line: str) -> Iterator[list[str]]:
    """The command lines of vmsonar in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    found: list[str] | None = None
    for word in lexer:
        if word == "vmsonar" and not found:  # sudo -u vmsonar vmsonar …
            found = []
        elif found is not None and re.fullmatch(r"[|&;<>()]+", word):
            yield found
            found = None
        elif found is not None:
            found.append(word)
    if found is not None:
        yield found


def blocks(text: str) -> Iterator[str]:
    """Lines of code: fenced as shell, or indented after an empty line."""
    fence, is_code, before = "", False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            fence = line[3:] or "plain" if not fence else ""
        elif fence in ("sh", "bash", "console", "plain"):
            yield line
        elif not fence and line.startswith("    ") and (is_code or not before.strip()):
            is_code = True
            yield line.strip()
            continue
        is_code, before = False, line


def of_pages() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text()
        lines = blocks(text) if page.suffix == ".md" else text.splitlines()
        found += [
            (page.name, line)
            for line in lines
            if re.search(r"(^|sudo |-u vmsonar |ssh vm |&& |\| )vmsonar [a-z]", line)
        ]
    return found


def of_helps() -> list[tuple[str, str]]:
    found = []
    for name in cli.COMMANDS:
        text = cli.load(name).callback.__doc__ or ""
        found += [(f"{name} --help", line) for line in re.findall(r"Example: (.*)", text)]
    return found


# A synopsis stands for many command lines.
LINES = [
    (where, line)
    for where, line in dict.fromkeys(of_pages() + of_helps())
    if not re.search(r"PATH…|\[VIEW\]|\[--|\$|QUERY", line)
]


def commands() -> list[tuple[str, tuple[str, ...]]]:
    return [(where, tuple(words)) for where, line in LINES for words in words_of(line) if words]


def test_there_are_examples() -> None:
    pages = {where for where, _ in commands()}
    assert {"README.md", "inspect.md", "commands.md", "bundles.md", "daemon.md", "operations.md"} <= pages
    assert {f"{name} --help" for name in cli.COMMANDS if name != "install"} <= pages


@pytest.mark.parametrize(("where", "words"), commands(), ids=lambda value: " ".join(value)[:60])
def test_the_command_line_takes_it(where: str, words: tuple[str, ...]) -> None:
    assert words[0] in cli.COMMANDS, where
    if "--help" in words:
        assert cli.run(list(words)) == 0
        return
    cli.load(words[0]).make_context(words[0], list(words[1:]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the pages name."""
    folder = tmp_path_factory.mktemp("examples")
    machine = healthy()
    machine.loads.append(Load(4711, "python3 train.py", user="anna", begin=0, cores=1.0))
    box = Box(box_id(1), "trainer", limit=2**30, oom_at=300)
    machine.boxes.append(box)
    machine.loads.append(Load(4712, "./fit", begin=0, end=300, container=box.container_id))
    machine.record(folder / "archive", 600)
    Machine(machine_id="f" * 32, hostname="vm-two").record(folder / "other", 60)
    (folder / "bundles").mkdir()
    for name in ("vm.tar", "vm-1.tar", "vm1.tar", "bundles/one.tar"):
        assert cli.run(["bundle", "--archive", str(folder / "archive"), "-o", str(folder / name)]) == 0
    assert cli.run(["bundle", "--archive", str(folder / "other"), "-o", str(folder / "bundles/two.tar")]) == 0
    return folder


def runnable() -> list[tuple[str, tuple[str, ...]]]:
    return [
        (where, words)
        for where, words in commands()
        if words[0] in RUN
        and where != "analysis.md"
        and not any(word in " ".join(words) for word in ELSEWHERE)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "words"), runnable(), ids=lambda value: " ".join(value)[:60])
def test_it_runs(
    where: str, words: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(place)
    monkeypatch.setenv("VMSONAR_ARCHIVE", str(place / "archive"))
    line = [word.replace("/var/lib/vmsonar", "archive").replace("/tmp", str(tmp_path)) for word in words]
    # Times of the pages mean their own recordings.
    for option in ("--from", "--to", "--since", "--until"):
        if option in line:
            del line[line.index(option) : line.index(option) + 2]
    if words[0] == "bundle" and "-o" not in line:
        line += ["-o", str(tmp_path)]
    code = cli.run(line)
    # Nobody records in this folder, and status says so.
    assert code == (1 if words[0] == "status" else 0), capsys.readouterr().err


def test_every_command_has_a_man_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "manual.py", tmp_path], check=True, timeout=60)
    pages = {path.name for path in tmp_path.iterdir()}
    assert pages == {"vmsonar.1", *(f"vmsonar-{name}.1" for name in cli.COMMANDS)}
    text = (tmp_path / "vmsonar-inspect.1").read_text()
    assert text.startswith(".TH VMSONAR-INSPECT 1")
    assert "\\-\\-min\\-runtime" in text
