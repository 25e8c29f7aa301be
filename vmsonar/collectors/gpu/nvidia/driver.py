"""The NVIDIA driver over time: it loads late, is reloaded, upgraded or broken, and is tried again."""

from datetime import datetime

from vmsonar_archive.records import Card

from vmsonar.collectors.gpu.faults import DriverFault, GpuFault
from vmsonar.collectors.gpu.nvidia.device import Device, Memory, read_cards
from vmsonar.collectors.gpu.nvidia.gate import Nvml
from vmsonar.collectors.gpu.nvidia.session import NvidiaSession
from vmsonar.collectors.gpu.reading import Reading
from vmsonar.host.backoff import Backoff

_SECOND = 1_000_000_000


class NvidiaDriver:
    """The driver with its devices; every method may block in it."""

    def __init__(self, nvml: Nvml, processes: bool = True) -> None:
        self._nvml = nvml
        self._processes = processes
        self._session: NvidiaSession | None = None
        self._devices: list[Device] = []
        self._memories: dict[str, Memory] = {}
        self._fault: GpuFault = DriverFault("driver_not_loaded")
        self._version: str | None = None
        #: Pauses between attempts to open the driver, and between looks for a lost device.
        self._opening = Backoff(10, 600, draw=max)
        self._probing = Backoff(60, 600, draw=max)
        #: When the next of each is due, in nanoseconds of CLOCK_BOOTTIME.
        self._open_due = 0
        self._probe_due = 0
        self._losing = False

    def sample(self, version: str | None, time: datetime, boottime: int) -> Reading:
        """All devices, or the fault that hides them; `version` is what the loaded driver shows."""
        if version != self._version:
            self._version = version
            self._may_open()
            self.close()
        if version is None:
            return self._failed(DriverFault("driver_not_loaded"))
        try:
            session = self._opened(boottime)
            return self._read(session, time, boottime) if session is not None else self._failed(self._fault)
        except DriverFault as fault:
            self.close()
            self._open_due = boottime + round(self._opening.next() * _SECOND)
            return self._failed(fault)

    def cards(self) -> list[Card]:
        """The devices and their instances as hardware; none while the driver cannot be opened."""
        return [] if self._session is None else read_cards(self._nvml, self._session.with_instances())

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _read(self, session: NvidiaSession, time: datetime, boottime: int) -> Reading:
        reading = session.read(time, boottime)
        if not session.has_lost:
            self._losing = False
            self._probing.reset()
        elif not self._losing:
            self._losing = True
            self._probe_later(boottime)
        return reading

    def _opened(self, boottime: int) -> NvidiaSession | None:
        if self._session is None:
            return self._open() if boottime >= self._open_due else None
        if self._losing and boottime >= self._probe_due:
            # a lost device comes back only when the driver is opened anew
            self._probe_later(boottime)
            self.close()
            return self._open()
        return self._session

    def _open(self) -> NvidiaSession:
        self._nvml.open()
        try:
            session = NvidiaSession(self._nvml, self._devices, self._memories, self._processes)
        except GpuFault:
            self._nvml.close()
            raise
        self._session, self._devices = session, session.devices
        self._may_open()
        return session

    def _may_open(self) -> None:
        """The next attempt to open the driver need not wait."""
        self._opening.reset()
        self._open_due = 0

    def _probe_later(self, boottime: int) -> None:
        self._probe_due = boottime + round(self._probing.next() * _SECOND)

    def _failed(self, fault: GpuFault) -> Reading:
        self._fault = fault
        return Reading(rows=[device.faulty_row(fault.reason) for device in self._devices], fault=fault)
