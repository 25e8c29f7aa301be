"""One kind of driver: asked on a thread of its own with a deadline, and loaded only where there is one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Lock
from typing import ClassVar, TypeVar

from vmsonar_archive.records import Capability, Card, GpuRow

from vmsonar.collectors.base import Tick
from vmsonar.collectors.gpu.faults import TIMEOUT, DriverFault
from vmsonar.collectors.gpu.reading import Reading
from vmsonar.collectors.gpu.worker import Hanging, Worker
from vmsonar.collectors.troubles import Trouble

_Answer = TypeVar("_Answer")


class Part(ABC):
    """Runs a source; a driver that hangs yields its known devices as unreadable."""

    what: ClassVar[str]

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._worker = Worker(f"vmsonar-{self.what}")
        self._lock = Lock()
        self._known: list[GpuRow] = []
        self._last = Reading()

    @abstractmethod
    def collect(self, tick: Tick) -> Reading:
        """What the driver says at this tick; an empty reading where there is none."""

    @abstractmethod
    def cards(self) -> list[Card] | None:
        """The GPUs as hardware, or None while the driver does not answer."""

    @abstractmethod
    def capabilities(self, collector: str) -> list[Capability]:
        """What can be seen here, what not, and what would change that."""

    @abstractmethod
    def close(self) -> None:
        """Gives the driver back."""

    def troubles(self) -> list[Trouble]:
        """What the last reading could not read."""
        troubles: list[Trouble] = [*self._last.troubles]
        fault = self._last.fault
        if fault is not None:
            troubles.append((fault.reason, fault.detail or f"{self.what} GPUs"))
        return troubles

    def _read(self, task: Callable[[], Reading]) -> Reading:
        """The source's reading, or one that says that it hangs."""
        try:
            with self._lock:
                self._last = self._worker.run(task, self._deadline)
            self._known = [_identity(row) for row in self._last.rows]
        except Hanging:
            fault = DriverFault(TIMEOUT, f"the {self.what} driver has not answered for {self._deadline:g} s")
            self._last = Reading(rows=[_unreadable(row) for row in self._known], fault=fault)
        return self._last

    def _ask(self, task: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """Any other answer of the source; may be asked beside `_read`."""
        try:
            with self._lock:
                return self._worker.run(task, self._deadline)
        except Hanging:
            return otherwise

    def _close(self, task: Callable[[], None]) -> None:
        self._ask(task, None)
        self._worker.close()


def _identity(row: GpuRow) -> GpuRow:
    return GpuRow(
        gpu_uuid=row.gpu_uuid, gpu_index=row.gpu_index, parent_uuid=row.parent_uuid, vendor=row.vendor
    )


def _unreadable(row: GpuRow) -> GpuRow:
    row.error = TIMEOUT
    return row
