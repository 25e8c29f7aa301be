"""The thread that waits for the disk, so that sampling never does."""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from vmsonar_archive.system import files


class SyncThread:
    """Runs fdatasync(2) and queued tasks one at a time, in order."""

    def __init__(
        self, on_error: Callable[[Exception], None], fdatasync: Callable[[int], None] = os.fdatasync
    ) -> None:
        self.durable_seq = 0
        #: Files that the disk refused to make durable: nothing more may be appended to them.
        self.failed: set[BinaryIO] = set()
        #: Files that were closed before all of them was durable.
        self.unsynced: set[BinaryIO] = set()
        self._on_error = on_error
        self._fdatasync = fdatasync
        self._tasks: deque[Callable[[], None]] = deque()
        self._syncs: dict[BinaryIO, int] = {}
        self._folders: set[Path] = set()
        self._at_end: Callable[[], None] = lambda: None
        self._ending = False
        self._busy = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="vmsonar-sync", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no task waits or runs; only then may another thread look at what tasks change."""
        with self._wake:
            return not (self._busy or self._tasks)

    def sync(self, file: BinaryIO, seq: int) -> None:
        """Queues a file to be made durable up to this record; a later request for it replaces this one."""
        with self._wake:
            self._syncs[file] = seq
            self._wake.notify()

    def owe(self, folder: Path) -> None:
        """A folder has a new name in it: no file counts as durable before the folder is."""
        with self._wake:
            self._folders.add(folder)

    def sync_folders(self) -> None:
        """Makes the folders durable that have new names in them; called by tasks."""
        while self._folders:
            with self._wake:
                folder = self._folders.pop()
            try:
                files.fsync_folder(folder)
            except OSError as error:
                if error.errno != errno.ENOENT:  # what is gone has no names to keep
                    self.owe(folder)
                raise

    def submit(self, task: Callable[[], None]) -> None:
        with self._wake:
            self._tasks.append(task)
            self._wake.notify()

    def run(self, task: Callable[[], None]) -> None:
        """Queues a task and waits for it; raises what it raised."""
        done = threading.Event()
        raised: list[BaseException] = []

        def run_and_signal() -> None:
            try:
                task()
            except BaseException as error:
                raised.append(error)
            finally:
                done.set()

        self.submit(run_and_signal)
        done.wait()
        if raised:
            raise raised[0]

    def end(self, seconds: float, then: Callable[[], None]) -> bool:
        """Runs what is queued, then `then`, and stops; False when that took longer than `seconds`."""
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
        try:
            self.sync_folders()
        except OSError:
            self.failed.update(file for file in syncs if not file.closed)
            raise
        for file in syncs:
            # A segment that was sealed in the meantime is durable already, and closed.
            if file.closed:
                continue
            try:
                self._fdatasync(file.fileno())
            except OSError as error:
                self.failed.add(file)
                refused = error
        unsynced = self.unsynced.intersection(syncs)
        self.unsynced -= unsynced
        if refused is not None:
            raise refused
        if not self.failed and not unsynced:
            self.durable_seq = max(self.durable_seq, *syncs.values())
