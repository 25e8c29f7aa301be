import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import typer
from vmsonar_archive.system.errors import AnswerIsNo, VmsonarError

from vmsonar import __version__, cli

ASK = ": ask as root, as its owner, or in its group"
VMSONAR = [sys.executable, "-m", "vmsonar"]


def fake(command):
    module = ModuleType("fake_command")
    module.probe_command = command
    return module


@pytest.fixture
def with_command(monkeypatch):
    def add(command):
        monkeypatch.setitem(sys.modules, "fake_command", fake(command))
        monkeypatch.setattr(cli, "COMMANDS", {"probe": ("fake_command", "Probes.")})

    return add


def test_help_lists_every_command_without_importing_any():
    code = (
        "import sys; from vmsonar import cli\n"
        "assert cli.run(['--help']) == 0\n"
        "print([m for m in sys.modules if m.startswith('vmsonar.commands.') or m in ('rich', 'yaml')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    for name in cli.COMMANDS:
        assert any(line.split()[:1] == [name] for line in text)


def test_a_command_loads_nothing_heavy(tmp_path):
    heavy = "pydantic", "pyarrow", "duckdb", "docker", "confluent_kafka", "cryptography"
    code = (
        "import sys; from vmsonar import cli\n"
        f"cli.run(['status', '--archive', {str(tmp_path)!r}])\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_is_quick():
    def once():
        before = os.times()
        subprocess.run([*VMSONAR, "--help"], capture_output=True, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(once() for _ in range(3)) < 5 * 0.2


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_has_help_with_an_example(name, capsys):
    assert cli.run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"vmsonar {name}" in text
    assert "Example" in text
    assert not re.search(r"<(?!table|duckdb|sonar|=)|\{(?!time)", text), "no types and braces of Python's"


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"vmsonar {__version__}\n"


def test_no_arguments_show_the_help(capsys):
    assert cli.run([]) == 0
    assert "Usage: vmsonar" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frobnicate"], "vmsonar: No such command 'frobnicate' (see: vmsonar --help)\n"),
        (["--frob"], "vmsonar: No such option: --frob (see: vmsonar --help)\n"),
        (["probe", "--count", "x"], "vmsonar probe: Invalid value for '--count': "),
        (["probe", "a"], "vmsonar probe: Got unexpected extra argument"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(with_command, capsys, arguments, line):
    def command(count: int = 1) -> None:
        """Probes."""

    with_command(command)
    assert cli.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(line)
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (VmsonarError("the disk is gone:\nmount it"), "vmsonar: the disk is gone: mount it\n", 3),
        (AnswerIsNo("2 files are damaged"), "vmsonar: 2 files are damaged\n", 1),
        (PermissionError(13, "Permission denied", "/x"), f"vmsonar: /x: Permission denied{ASK}\n", 3),
        (typer.Exit(1), "", 1),
        (KeyboardInterrupt(), "", 130),
    ],
)
def test_errors_that_are_answers(with_command, capsys, error, line, code):
    def command() -> None:
        """Probes."""
        raise error

    with_command(command)
    assert cli.run(["probe"]) == code
    assert capsys.readouterr() == ("", line)


def test_what_a_command_returns_is_its_exit_code(with_command):
    def command() -> int:
        """Probes."""
        return 1

    with_command(command)
    assert cli.run(["probe"]) == 1


def test_a_bug_keeps_its_traceback(with_command):
    def command() -> None:
        """Probes."""
        raise ZeroDivisionError

    with_command(command)
    with pytest.raises(ZeroDivisionError):
        cli.run(["probe"])


def test_a_reader_that_goes_away_is_no_error():
    pipe = subprocess.Popen([*VMSONAR, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe.stdout.close()
    assert pipe.stderr.read() == b""
    pipe.stderr.close()
    assert pipe.wait() in (0, 1)


def test_shell_completion_offers_the_commands():
    environment = os.environ | {
        "_VMSONAR_COMPLETE": "complete_bash",
        "COMP_WORDS": "vmsonar ",
        "COMP_CWORD": "1",
    }
    started = time.monotonic()
    done = subprocess.run(VMSONAR, capture_output=True, text=True, env=environment, check=False)
    assert set(done.stdout.split()) == set(cli.COMMANDS)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("inspect vm.tar ti", ["timeline"]),
        ("inspect vm.tar g", ["gpus", "gaps"]),
        ("inspect ", []),
        ("inspect --sort r", ["runtime", "read"]),
    ],
)
def test_shell_completion_knows_views_and_leaves_paths_to_the_shell(words, offered):
    line = f"vmsonar {words}"
    asked = {
        "_VMSONAR_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words.split(" "))),
    }
    done = subprocess.run(VMSONAR, capture_output=True, text=True, env=os.environ | asked, check=False)
    assert done.stdout.split() == offered


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_is_documented(name):
    root = Path(__file__).parents[2]
    texts = [path.read_text() for path in [root / "README.md", *(root / "docs").glob("*.md")]]
    assert any(f"vmsonar {name}" in text for text in texts)
