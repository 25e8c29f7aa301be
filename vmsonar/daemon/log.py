"""Lines on standard error: with a priority for the journal (sd-daemon(3)), with the time anywhere else."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partialmethod
from typing import TextIO

from vmsonar_archive.system.text import printable

_PRIORITIES = {"error": 3, "warning": 4, "info": 6, "debug": 7}


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is connected to the journal: a terminal may have inherited the variable alone."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class Log:
    """Writes what is important enough, one line each; never fails."""

    def __init__(
        self,
        level: str = "info",
        stream: TextIO | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.level = level
        self._stream = stream or sys.stderr
        self._for_journal = is_journal(self._stream, environment)

    def _write(self, level: str, message: str) -> None:
        if _PRIORITIES[level] > _PRIORITIES[self.level]:
            return
        text = printable(" ".join(message.split()))
        if self._for_journal:
            line = f"<{_PRIORITIES[level]}>{text}\n"
        else:
            line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} vmsonar: {level}: {text}\n"
        with suppress(OSError, ValueError):  # there is no other place to report it
            self._stream.write(line)
            self._stream.flush()

    error = partialmethod(_write, "error")
    warning = partialmethod(_write, "warning")
    info = partialmethod(_write, "info")
