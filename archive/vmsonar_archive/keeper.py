"""The thread that waits for the disk, so that sampling never does."""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO


class Keeper:
    """Runs fdatasync(2) and queued tasks one after the other, in the order in which they were asked for."""

    def __init__(
        self, on_error: Callable[[Exception], None], fdatasync: Callable[[int], None] = os.fdatasync
    ) -> None:
        self.durable_seq = 0
        #: Files that the disk refused to make durable: nothing more may be appended to them.
        self.failed: set[BinaryIO] = set()
        self._on_error = on_error
        self._fdatasync = fdatasync
        self._tasks: deque[Callable[[], None]] = deque()
        self._syncs: dict[BinaryIO, int] = {}
        self._at_end: Callable[[], None] = lambda: None
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
        """Asks that a file be made durable up to this record; a later request for the file takes its place."""
        with self._wake:
            self._syncs[file] = seq
            self._wake.notify()

    def submit(self, task: Callable[[], None]) -> None:
        """Asks that a task be run after those asked for before."""
        with self._wake:
            self._tasks.append(task)
            self._wake.notify()

    def run(self, task: Callable[[], None]) -> None:
        """The same, and waits for it; raises what it raised."""
        done = threading.Event()
        raised: list[BaseException] = []

        def and_tell() -> None:
            try:
                task()
            except BaseException as error:
                raised.append(error)
            finally:
                done.set()

        self.submit(and_tell)
        done.wait()
        if raised:
            raise raised[0]

    def end(self, seconds: float, then: Callable[[], None]) -> bool:
        """Runs what is queued, then the last task, and stops; False when the disk took longer than that."""
        with self._wake:
            self._at_end = then
            self._ending = True
            self._wake.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            try:
                step()
            except Exception as error:
                # Whatever it is, the next task and the next sync must still be done.
                self._on_error(error)
            finally:
                self._busy = False
        self._at_end()

    def _next(self) -> Callable[[], None] | None:
        with self._wake:
            while not (self._tasks or self._syncs or self._ending):
                self._wake.wait()
            if self._tasks:
                self._busy = True
                return self._tasks.popleft()
            if self._syncs:
                syncs, self._syncs = self._syncs, {}
                return lambda: self._make_durable(syncs)
            return None

    def _make_durable(self, syncs: dict[BinaryIO, int]) -> None:
        refused: OSError | None = None
        for file in syncs:
            # A segment that was sealed in the meantime is durable already, and closed.
            if file.closed:
                continue
            try:
                self._fdatasync(file.fileno())
            except OSError as error:
                self.failed.add(file)
                refused = error
        if refused is not None:
            raise refused
        if not self.failed:
            self.durable_seq = max(self.durable_seq, *syncs.values())
