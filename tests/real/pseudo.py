"""A command on a pseudo terminal of its own, with every byte that it writes there (pty(7))."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 60.0


class Pseudo:
    """Runs one command as the leader of a session; what it writes to the terminal is kept as it is."""

    def __init__(
        self, command: Sequence[str], folder: Path | None = None, more: Mapping[str, str] | None = None
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                if folder is not None:
                    os.chdir(folder)
                os.execvpe(command[0], list(command), {**environment, "TERM": "xterm", **(more or {})})
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self.written = b""

    def __enter__(self) -> "Pseudo":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)

    def press(self, keys: bytes) -> None:
        """Types something; Ctrl-C is b"\\x03"."""
        os.write(self._terminal, keys)

    def wait(self, seconds: float = SECONDS) -> int:
        """The exit code, as a shell would say it, once it has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0):
                    pass
                return os.waitstatus_to_exitcode(status)
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise TimeoutError(f"not over after {seconds} s: {self.written[-2000:]!r}")

    def read(self, seconds: float) -> bool:
        """Takes what is there, or comes within so long; False at the end."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        try:
            got = os.read(self._terminal, 65536)
        except OSError:  # EIO: nobody has it open any more
            return False
        self.written += got
        return bool(got)
