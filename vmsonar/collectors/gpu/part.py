"""One source of GPUs on a thread of its own, and what its troubles are."""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from vmsonar_archive.records import GpuRow

from vmsonar.collectors.gpu.faults import TIMEOUT, DriverFault
from vmsonar.collectors.gpu.reading import Reading
from vmsonar.collectors.gpu.worker import Hanging, Worker
from vmsonar.collectors.troubles import Trouble

_Answer = TypeVar("_Answer")


class Part:
    """Runs a source with a deadline; a driver that hangs yields its known devices as unreadable."""

    def __init__(self, what: str, deadline: float) -> None:
        self._what = what
        self._deadline = deadline
        self._worker = Worker(f"vmsonar-{what}")
        self._known: list[GpuRow] = []
        self._lock = Lock()
        self.last = Reading()
        #: Whether it was asked at all.
        self.asked = False

    @property
    def knows_devices(self) -> bool:
        return bool(self._known)

    def read(self, task: Callable[[], Reading]) -> Reading:
        """The source's reading, or one that says that it hangs."""
        self.asked = True
        try:
            with self._lock:
                self.last = self._worker.run(task, self._deadline)
            self._known = [_identity(row) for row in self.last.rows]
        except Hanging:
            fault = DriverFault(TIMEOUT, f"the {self._what} driver has not answered for {self._deadline:g} s")
            self.last = Reading(rows=[_unreadable(row) for row in self._known], fault=fault)
        return self.last

    def ask(self, task: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """Any other answer of the source; may be called beside `read`."""
        try:
            with self._lock:
                return self._worker.run(task, self._deadline)
        except Hanging:
            return otherwise

    def troubles(self) -> list[Trouble]:
        """What the last reading could not read."""
        troubles: list[Trouble] = [*self.last.troubles]
        fault = self.last.fault
        if fault is not None:
            troubles.append((fault.reason, fault.detail or f"{self._what} GPUs"))
        return troubles

    def close(self, task: Callable[[], None]) -> None:
        self.ask(task, None)
        self._worker.close()


def _identity(row: GpuRow) -> GpuRow:
    return GpuRow(
        gpu_uuid=row.gpu_uuid, gpu_index=row.gpu_index, parent_uuid=row.parent_uuid, vendor=row.vendor
    )


def _unreadable(row: GpuRow) -> GpuRow:
    row.error = TIMEOUT
    return row
