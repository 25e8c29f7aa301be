"""A process that has a terminal of its own, whose output goes to a file (pty(7))."""

import os
import pty
import signal
import subprocess
import threading
from pathlib import Path


class Console:
    """Starts a command on a new pseudo-terminal and keeps all that it prints."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        self._master, terminal = pty.openpty()
        try:
            self._process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal,
                                             env=environment, start_new_session=True)  # fmt: skip
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(terminal)
        self._drain = threading.Thread(target=self._copy_output, daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Waits for the end; kills and raises TimeoutError if it does not come."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise TimeoutError(f"still running after {seconds:g} s:\n{self.tail()}") from None
        finally:
            self._drain.join(10)

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _copy_output(self) -> None:
        with self.log.open("ab", buffering=0) as log:
            try:
                while data := os.read(self._master, 65536):
                    log.write(data)
            except OSError:
                pass  # EIO: nobody holds the terminal any more
            finally:
                os.close(self._master)
