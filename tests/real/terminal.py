"""A real terminal that a test can look at and type into: a tmux server of its own (tmux(1))."""

import os
import secrets
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.real.wait import wait_until

SECONDS = 60


class Terminal:
    """A command on a terminal of a known size; what it shows is what a person would see."""

    def __init__(
        self, command: Sequence[str], width: int = 80, height: int = 24, folder: Path | None = None
    ) -> None:
        self._server = ["tmux", "-L", f"vmsonar-{secrets.token_hex(6)}", "-f", "/dev/null"]
        # The shell tells the exit code below what the command left behind.
        line = f'trap : INT; {shlex.join(command)}; echo "[exit $?]"; exec cat'
        size = ("-x", str(width), "-y", str(height))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "TMUX")
        }
        subprocess.run(
            [*self._server, "new-session", "-d", *size, "sh", "-c", line],
            check=True, timeout=SECONDS, cwd=folder, env=environment,
        )  # fmt: skip

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([*self._server, "kill-server"], check=False, timeout=SECONDS, capture_output=True)

    def _ask(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._server, *arguments], check=True, timeout=SECONDS, capture_output=True, text=True
        )
        return done.stdout

    @property
    def text(self) -> str:
        """What is on the screen, without spaces and lines at the end."""
        lines = [line.rstrip() for line in self._ask("capture-pane", "-p").splitlines()]
        return "\n".join(lines).rstrip("\n")

    @property
    def history(self) -> str:
        """What is on the screen and what has left it at the top."""
        return self._ask("capture-pane", "-p", "-S", "-")

    def flag(self, name: str) -> str:
        """What tmux knows, such as cursor_flag (visible) or alternate_on (a full screen program)."""
        return self._ask("display-message", "-p", f"#{{{name}}}").strip()

    def type(self, *keys: str) -> None:
        """Presses keys, such as C-c."""
        self._ask("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._ask("resize-window", "-x", str(width), "-y", str(height))

    def until(self, *words: str, seconds: float = SECONDS) -> str:
        """Waits until all of these are on the screen; returns it."""
        wait_until(lambda: all(word in self.text for word in words), seconds, f"{words} on the screen")
        return self.text
