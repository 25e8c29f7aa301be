"""The thread that waits for the disk, so that sampling never does."""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO


class Keeper:
    """Runs fdatasync(2) and queued tasks one after the other, in the order in which they were asked for."""

    def __init__(
        self, on_error: Callable[[OSError], None], fdatasync: Callable[[int], None] = os.fdatasync
    ) -> None:
        self.durable_seq = 0
        self._on_error = on_error
        self._fdatasync = fdatasync
        self._tasks: deque[Callable[[], None]] = deque()
        self._sync: tuple[BinaryIO, int] | None = None
        self._ending = False
        self._busy = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="vmsonar-keeper", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no task waits or runs; only then may another thread look at what tasks change."""
        with self._wake:
            return not (self._busy or self._tasks)

    def sync(self, file: BinaryIO, seq: int) -> None:
        """Asks that everything up to this record be made durable; later requests take the place of earlier ones."""
        with self._wake:
            self._sync = (file, seq)
            self._wake.notify()

    def submit(self, task: Callable[[], None]) -> None:
        """Asks that a task be run after those asked for before."""
        with self._wake:
            self._tasks.append(task)
            self._wake.notify()

    def end(self, seconds: float) -> bool:
        """Runs what is queued and stops; False when the disk took longer than so many seconds."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            try:
                step()
            except OSError as error:
                self._on_error(error)
            finally:
                self._busy = False

    def _next(self) -> Callable[[], None] | None:
        with self._wake:
            while not (self._tasks or self._sync or self._ending):
                self._wake.wait()
            if self._tasks:
                self._busy = True
                return self._tasks.popleft()
            if self._sync is not None:
                file, seq = self._sync
                self._sync = None
                # A segment that was sealed in the meantime is durable already, and closed.
                return lambda: self._make_durable(file, seq)
            return None

    def _make_durable(self, file: BinaryIO, seq: int) -> None:
        if file.closed:
            return
        self._fdatasync(file.fileno())
        self.durable_seq = max(self.durable_seq, seq)
