"""One teardown of an archive at a time, by flock(2) on its folder: nothing is created, whoever asks."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_PAUSE = 0.1


class Turn:
    """Waits for its turn for so long; `ours` says whether it came."""

    def __init__(self, archive: Path, seconds: float) -> None:
        self.ours = False
        self._descriptor: int | None = None
        end = time.monotonic() + seconds
        with suppress(OSError):  # an archive that cannot be opened is told of by whoever reads it
            self._descriptor = os.open(archive, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.ours = self._take()
            while not self.ours and time.monotonic() < end:
                time.sleep(_PAUSE)
                self.ours = self._take()

    def _take(self) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def taken(self) -> bool:
        """Whether somebody else has it."""
        return self._descriptor is not None and not self.ours

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
