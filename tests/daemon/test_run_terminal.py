"""`vmsonar run` on a real terminal: interactive programs, Ctrl-C, Ctrl-Z, background, window size."""

import shlex
import sys
from pathlib import Path

from tests.daemon.commands import environment, line
from tests.parts import requires
from tests.real.terminal import Terminal
from tests.real.wait import wait_until

pytestmark = requires("tmux")

_TAKER = """
import signal, time
signal.signal(signal.SIGINT, lambda *_: print("took", "it", flush=True))
print("be", "gun", flush=True)
end = time.time() + 40
while time.time() < end:
    time.sleep(0.1)
"""

_SIZE = """
import os, signal
tell = lambda word: print(word, os.get_terminal_size().columns, flush=True)
signal.signal(signal.SIGWINCH, lambda *_: tell("now"))
tell("began")
input()
"""


def _terminal(tmp_path, script="", **size):
    """A shell with job control that has a command `v` for vmsonar run."""
    settings = environment(tmp_path)
    exports = "".join(f"export {name}={shlex.quote(settings[name])}\n" for name in ("HOME", "PYTHONPATH"))
    (tmp_path / "v").write_text(f'#!/bin/sh\nexec {shlex.join(line())} "$@"\n')
    (tmp_path / "v").chmod(0o755)
    start = tmp_path / "start"
    start.write_text(f"{exports}PATH={tmp_path}:$PATH\nPS1='> '\nset -b\nunset HISTFILE\n{script}\n")
    return Terminal(["bash", "--noprofile", "--rcfile", str(start), "-i"], **size)


def _processes(*words):
    """The stat fields, from the state on, of every process with this command line."""
    wanted = "\0".join((*words, "")).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                yield path.with_name("stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue


def _running(*words):
    return any(_processes(*words))


def _bring_back(terminal, *words):
    """Types fg; what is typed before the command has the terminal would go to the shell's line editor."""
    terminal.type("fg", "Enter")
    wait_until(
        lambda: any(
            state in "SR" and group == owner for state, _, group, _, _, owner, *_ in _processes(*words)
        ),
        30,
        "the command to be in the foreground",
    )


def test_ctrl_c_ends_the_command_and_the_loop_around_it(tmp_path):
    """The shell goes by the signal that ended us: were it an exit code, a loop would go on."""
    with _terminal(tmp_path) as terminal:
        terminal.type("for i in 1 2 3; do echo round $i; v --quiet -- sleep 61.25; done", "Enter")
        terminal.until("round 1")
        wait_until(lambda: _running("sleep", "61.25"), 60, "the command to run")
        terminal.type("C-c")
        wait_until(lambda: not _running("sleep", "61.25"), 30, "the command to end")
        terminal.type("echo next $?", "Enter")
        assert "round 2" not in terminal.until("next 130")


def test_a_program_that_takes_ctrl_c_itself_goes_on(tmp_path):
    (tmp_path / "taker.py").write_text(_TAKER)
    with _terminal(tmp_path, f"cd {tmp_path}") as terminal:
        terminal.type(f"v --quiet -- {sys.executable} taker.py; echo code $?", "Enter")
        terminal.until("be gun")
        terminal.type("C-c")
        text = terminal.until("took it")
        assert "code" not in text.rpartition("be gun")[2]
        assert text.count("took it") == 1
        terminal.type("C-\\")
        terminal.until("code 131")


def test_ctrl_z_stops_it_and_fg_continues(tmp_path):
    with _terminal(tmp_path) as terminal:
        terminal.type("v --quiet -- sh -c 'echo be gun; read x; echo got $x; exit 7'; echo code $?", "Enter")
        terminal.until("be gun")
        terminal.type("C-z")
        terminal.until("Stopped")
        terminal.type("jobs", "Enter")
        terminal.until("Stopped", "v --quiet")
        _bring_back(terminal, "sh", "-c", "echo be gun; read x; echo got $x; exit 7")
        terminal.type("word", "Enter")
        terminal.until("got word")
        terminal.type("echo last", "Enter")
        terminal.until("last")


def test_in_the_background_it_stops_when_it_reads_the_terminal(tmp_path):
    with _terminal(tmp_path) as terminal:
        terminal.type("v --quiet -- sh -c 'read x; echo got $x' &", "Enter")
        terminal.until("Stopped", seconds=60)
        _bring_back(terminal, "sh", "-c", "read x; echo got $x")
        terminal.type("word", "Enter")
        terminal.until("got word")


def test_it_follows_the_size_of_its_window(tmp_path):
    (tmp_path / "size.py").write_text(_SIZE)
    with _terminal(tmp_path, f"cd {tmp_path}", width=100, height=30) as terminal:
        terminal.type(f"v -- {sys.executable} size.py", "Enter")
        terminal.until("began 100")
        terminal.resize(90, 24)
        terminal.until("now 90")
        terminal.type("Enter")
        text = terminal.until("elapsed")
    assert "100" not in text.rpartition("now 90")[2].partition("elapsed")[0]


def test_an_interactive_program_fills_the_screen(tmp_path):
    with _terminal(tmp_path, width=80, height=24) as terminal:
        terminal.type("v -- top; echo code $?", "Enter")
        terminal.until("load average", "PID")
        terminal.type("q")
        text = terminal.until("code 0")
    assert "elapsed" in text
    assert "CPU" in text
    assert all(len(each) <= 80 for each in text.splitlines())
