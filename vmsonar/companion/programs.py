"""Runs programs that are not ours within bounds: fixed places, no shell, a time limit, a most that they may say."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from typing import IO

from vmsonar_archive.system.text import masked

from vmsonar.collectors.slurm.collector import program_path
from vmsonar.config.schema import Slurm as Settings

#: Bytes of one answer, of about 100,000 jobs and steps. It goes to a file that has no name; /tmp may be
#: memory, which counts for MemoryMax of the unit.
MOST = 128 * 1024 * 1024
_LOOK_EVERY = 0.05


class ProgramError(Exception):
    """A program did not answer as it should; `state` says in one word how."""

    def __init__(self, detail: str, state: str) -> None:
        super().__init__(detail)
        self.state = state


class Programs:
    """The programs of Slurm, one question at a time."""

    def __init__(self, settings: Settings, most: int = MOST) -> None:
        self._settings = settings
        self._most = most

    def answer(self, name: str, *words: str) -> IO[bytes]:
        """What a program says, as a file; raises ProgramError."""
        path = program_path(name, self._settings)
        if path is None:
            raise ProgramError(f"there is no {name}", "absent")
        with tempfile.TemporaryFile() as errors:
            said = tempfile.TemporaryFile()  # noqa: SIM115 - handed back open
            try:
                child = subprocess.Popen(
                    [path, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=errors, env=self._environment(),
                    cwd="/", start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                said.close()
                raise ProgramError(f"{path}: {error.strerror}", "failed") from None
            try:
                self._wait(child, name, said, errors)
                if child.returncode:
                    errors.seek(0)
                    why = masked(errors.read(400).decode("utf-8", "replace").strip().partition("\n")[0])
                    raise ProgramError(
                        f"{path} ended with {child.returncode}: {why or 'it says nothing'}", "failed"
                    )
            except BaseException:
                said.close()
                raise
        said.seek(0)
        return said

    def lines(self, name: str, *words: str) -> list[str]:
        """The first lines of an answer, bounded in number and length."""
        with self.answer(name, *words) as said:
            return said.read(_MOST_TEXT).decode("utf-8", "replace").splitlines()

    def _wait(self, child: subprocess.Popen[bytes], name: str, *said: IO[bytes]) -> None:
        end = time.monotonic() + self._settings.timeout
        try:
            while child.poll() is None:
                if time.monotonic() > end:
                    raise ProgramError(
                        f"{name} has not answered within {self._settings.timeout:g} s", "timeout"
                    )
                self._check_size(name, said)
                time.sleep(_LOOK_EVERY)
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self._check_size(name, said)

    def _check_size(self, name: str, said: Iterable[IO[bytes]]) -> None:
        if sum(os.fstat(each.fileno()).st_size for each in said) > self._most:
            raise ProgramError(f"{name} says more than {self._most} bytes", "too_large")

    def _environment(self) -> dict[str, str]:
        """Nothing of ours but where its configuration is; times as seconds since 1970."""
        conf = self._settings.conf or os.environ.get("SLURM_CONF")
        fixed = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
        return fixed | ({"SLURM_CONF": conf} if conf else {})


_MOST_TEXT = 8 * 1024 * 1024
