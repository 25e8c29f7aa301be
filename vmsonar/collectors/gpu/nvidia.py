"""The NVIDIA driver over time: it loads late, is reloaded, upgraded or broken, and is tried again."""

from datetime import datetime

from vmsonar_archive.records import Card

from vmsonar.collectors.gpu.backoff import Backoff
from vmsonar.collectors.gpu.faults import DriverFault, GpuFault
from vmsonar.collectors.gpu.gate import Nvml
from vmsonar.collectors.gpu.nvidia_cards import read_cards
from vmsonar.collectors.gpu.nvidia_device import Device, Memory
from vmsonar.collectors.gpu.nvidia_session import NvidiaSession
from vmsonar.collectors.gpu.reading import Reading


class NvidiaSource:
    """All of it may block in the driver, and runs on one thread."""

    def __init__(self, nvml: Nvml, processes: bool = True) -> None:
        self._nvml = nvml
        self._processes = processes
        self._session: NvidiaSession | None = None
        self._devices: list[Device] = []
        self._memories: dict[str, Memory] = {}
        self._fault: GpuFault = DriverFault("driver_not_loaded")
        self._version: str | None = None
        self._opening = Backoff()
        self._probing = Backoff(first=60.0)
        self._losing = False

    def sample(self, version: str | None, time: datetime, boottime: int) -> Reading:
        """All devices, or the fault that hides them; `version` is what the loaded driver shows."""
        if version != self._version:
            self._version = version
            self._opening.succeeded()
            self.close()
        if version is None:
            return self._failed(DriverFault("driver_not_loaded"))
        try:
            session = self._opened(boottime)
            return self._read(session, time, boottime) if session is not None else self._failed(self._fault)
        except DriverFault as fault:
            self.close()
            self._opening.failed(boottime)
            return self._failed(fault)

    def cards(self, version: str | None, time: datetime, boottime: int) -> list[Card]:
        """The devices and their instances as hardware; none while the driver cannot be opened."""
        if self._session is None:
            self.sample(version, time, boottime)
        if self._session is None:
            return []
        return read_cards(self._nvml, self._session.with_instances())

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _read(self, session: NvidiaSession, time: datetime, boottime: int) -> Reading:
        reading = session.read(time, boottime)
        if not session.has_lost:
            self._losing = False
            self._probing.succeeded()
        elif not self._losing:
            self._losing = True
            self._probing.failed(boottime)
        return reading

    def _opened(self, boottime: int) -> NvidiaSession | None:
        if self._session is None:
            return self._open() if self._opening.due(boottime) else None
        if self._losing and self._probing.due(boottime):
            # a lost device comes back only to those who open the driver anew
            self._probing.failed(boottime)
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
        self._opening.succeeded()
        return session

    def _failed(self, fault: GpuFault) -> Reading:
        self._fault = fault
        return Reading(rows=[device.faulty_row(fault.reason) for device in self._devices], fault=fault)
