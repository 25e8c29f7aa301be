"""On a real terminal: the live view, and the bar that is shown while one waits."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import NODE, daemon, samples, stop
from tests.making.scenes import healthy
from tests.parts import requires
from tests.real.terminal import Terminal

pytestmark = [pytest.mark.slow, requires("tmux")]

VMSONAR = [sys.executable, "-m", "vmsonar"]
ENTRIES = (NODE, 'Entry("process", "vmsonar.collectors.process.collector")')


def following(archive: Path, *more: str) -> list[str]:
    return [*VMSONAR, "inspect", str(archive), "--follow", "--every", "500ms", *more]


def count(text: str) -> int:
    """How many samples the screen tells of."""
    found = re.search(r"([\d,]+) samples", text)
    return int(found[1].replace(",", "")) if found else 0


def grows(terminal: Terminal, beyond: int) -> int:
    """Waits until more samples are shown."""
    deadline = time.monotonic() + 60
    while (now := count(terminal.text)) <= beyond:
        assert time.monotonic() < deadline, terminal.text
        time.sleep(0.1)
    return now


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Terminal, Path]]:
    """A live view that was opened before there was an archive."""
    folder = tmp_path_factory.mktemp("follow")
    archive = folder / "archive"
    with Terminal(following(archive), 80, 30) as terminal:
        yield terminal, archive


def test_the_life_of_a_live_view(followed: tuple[Terminal, Path]) -> None:
    terminal, archive = followed
    # Not there yet.
    text = terminal.until("does not exist", "Ctrl-C ends")
    assert terminal.flag("alternate_on") == "1"
    assert terminal.flag("cursor_flag") == "0"
    # It comes, and grows.
    with daemon(archive, "--interval=200ms", entries=ENTRIES) as process:
        terminal.until("Top jobs", "over time")
        first = grows(terminal, grows(terminal, 2))
        stop(process)
    # Another daemon run begins another segment; the one before is sealed.
    with daemon(archive, "--interval=200ms", entries=ENTRIES) as process:
        assert grows(terminal, len(samples(archive))) > first
        assert len(list(archive.glob("*/*/*/sample-*"))) == 2
        # Another size, at once: nothing is wider than the window, and there is more to see.
        terminal.resize(120, 40)
        wide = terminal.until("over time", seconds=30)
        deadline = time.monotonic() + 30
        while max(map(len, terminal.text.splitlines())) <= 100:
            assert time.monotonic() < deadline, wide
            time.sleep(0.1)
        terminal.resize(70, 24)
        deadline = time.monotonic() + 30
        while not terminal.text.splitlines()[-1].strip() or len(terminal.text.splitlines()) > 24:
            assert time.monotonic() < deadline, terminal.text
            time.sleep(0.1)
        stop(process)
    terminal.type("C-c")
    text = terminal.until("[exit 0]")
    assert text == "[exit 0]", "nothing is left of the live view"
    assert terminal.flag("alternate_on") == "0"
    assert terminal.flag("cursor_flag") == "1"


def test_a_new_size_is_obeyed_at_once_and_an_end_from_outside_gives_the_terminal_back(tmp_path: Path) -> None:
    archive = healthy().record(tmp_path / "archive", 600)
    script = (
        "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
    )
    follow = [*VMSONAR, "inspect", str(archive), "jobs", "--from", "2026-11-01", "--follow", "--every", "1h"]
    with Terminal([sys.executable, "-c", script, str(tmp_path / "pid"), *follow]) as terminal:
        assert "read / written" not in terminal.until("simulate")
        terminal.resize(200, 30)
        terminal.until("read / written", seconds=20)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
        terminal.until("[exit 143]")
        assert terminal.flag("alternate_on") == "0"
        assert terminal.flag("cursor_flag") == "1"


def test_a_wrong_option_ends_it_before_it_begins(tmp_path: Path) -> None:
    with Terminal(following(tmp_path, "--sort", "colour")) as terminal:
        text = terminal.until("[exit 2]")
    assert "cannot sort by 'colour'" in text


def test_in_a_pipe_one_view_follows_the_other(tmp_path: Path) -> None:
    archive = healthy().record(tmp_path / "archive", 600)
    command = following(archive, "--from", "2026-11-01")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = 0
        while seen < 2:
            seen += process.stdout.readline().startswith("vm-one")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == ""
    assert process.returncode == 0


SLOW = """
import sys, time
from vmsonar_inspect.tables.progress import waiting
with waiting("reading [b]vm[/b]") as wait:
    wait.expect(4)
    for _ in range(4):
        time.sleep(float(sys.argv[1]))
        wait.advance()
print("done")
"""


def test_a_bar_tells_how_far_it_is_and_leaves_nothing_behind() -> None:
    with Terminal([sys.executable, "-c", SLOW, "0.8"]) as terminal:
        text = terminal.until("reading [b]vm[/b]", "50 %")
        assert "━" in text
        assert terminal.until("[exit 0]") == "done\n[exit 0]"
        assert terminal.flag("cursor_flag") == "1"


def test_what_is_quick_has_no_bar() -> None:
    with Terminal([sys.executable, "-c", SLOW, "0.1"]) as terminal:
        seen = []
        while "[exit" not in (text := terminal.text):
            seen.append(text)
        assert not any("reading" in text for text in seen)


def test_without_a_terminal_there_is_no_bar() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW, "0.4"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


# Shows a bar at once, and reads so slowly that it can be seen to move.
IMPATIENT = """
import sys, time
from vmsonar_inspect.tables import progress
progress.PATIENCE = 0.0
advance = progress.Bar.advance
progress.Bar.advance = lambda *what: (time.sleep(0.15), advance(*what))[1]
from vmsonar.cli import run
sys.exit(run(sys.argv[1:]))
"""


def test_reading_has_a_bar_with_its_share(tmp_path: Path) -> None:
    archive = healthy().record(tmp_path / "archive", 5 * 3600)
    seen: list[str] = []
    with Terminal(
        [sys.executable, "-c", IMPATIENT, "inspect", str(archive), "--json", "jobs"], 120
    ) as terminal:
        while "[exit" not in (text := terminal.text):
            seen += [line for line in text.splitlines() if line.startswith("reading ")]
            time.sleep(0.02)
        assert terminal.history.startswith('{\n  "answer": 1,'), "nothing is left of the bar"
    shares = {share for line in seen for share in re.findall(r"(\d+) %", line)}
    assert seen
    assert len(shares) > 1, "it moves"
