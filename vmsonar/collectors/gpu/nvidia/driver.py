"""The NVIDIA driver over time: it loads late, is reloaded, upgraded or broken; a session is one opening of it."""

import ctypes
from contextlib import suppress
from datetime import datetime
from typing import Any

from vmsonar_archive.records import Card, EventRow

from vmsonar.collectors.gpu.collector import DeviceFault, DriverFault, GpuFault, Reading, ValueFault
from vmsonar.collectors.gpu.nvidia.device import (
    Device,
    DeviceHistory,
    read_cards,
    read_device,
    read_instance,
    read_pcie,
    read_processes,
)
from vmsonar.collectors.gpu.nvidia.nvml import Nvml, at_opening
from vmsonar.host.clock import Backoff

_SECOND = 1_000_000_000
# Each reading of PCIe traffic blocks for 20 ms, so it is made rarely.
_PCIE_PAUSE = 300 * _SECOND
_XID = 0x8
# A GPU in trouble can raise them without end.
_MOST_EVENTS = 64


class XidEvents:
    """The event set of one opened driver; it is asked, never waited for."""

    def __init__(self, nvml: Nvml, devices: list[Device]) -> None:
        self._nvml = nvml
        self._uuids = {_address(device.handle): device.uuid for device in devices}
        self._set: Any = None
        with suppress(DeviceFault, ValueFault):
            self._set = nvml.call("nvmlEventSetCreate")
        for device in devices if self._set is not None else []:
            device.ask_by_name("nvmlDeviceRegisterEvents", _XID, self._set)

    def read(self) -> list[EventRow]:
        """What was raised since the last time."""
        events: list[EventRow] = []
        while self._set is not None and len(events) < _MOST_EVENTS:
            try:
                data = self._nvml.call("nvmlEventSetWait_v2", self._set, 0)
            except GpuFault:
                # a timeout is the usual answer: no event
                break
            if data.eventType & _XID:
                uuid = self._uuids.get(_address(data.device))
                events.append(EventRow(event_type="gpu_xid", gpu_uuid=uuid, code=data.eventData))
        return events

    def close(self) -> None:
        if self._set is not None:
            with suppress(GpuFault):
                self._nvml.call("nvmlEventSetFree", self._set)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


class NvidiaSession:
    """An opened driver; `before` are the devices known from an earlier opening."""

    def __init__(
        self, nvml: Nvml, before: list[Device], histories: dict[str, DeviceHistory], processes: bool
    ) -> None:
        self._nvml = nvml
        self._histories = histories
        self._processes = processes
        #: Devices that the driver counts and will not name: the reason and the number in words.
        self.nameless: list[tuple[str, str]] = []
        present = self._enumerate(before)
        self._events = XidEvents(nvml, present)
        uuids = {device.uuid for device in present}
        missing = [device for device in before if device.uuid not in uuids]
        for device in missing:
            # it stays, as lost
            device.fault = device.fault or "gpu_not_found"
        self.devices = sorted(present + missing, key=lambda device: device.index)

    @property
    def has_lost(self) -> bool:
        return any(device.fault for device in self.devices) or bool(self.nameless)

    def read(self, time: datetime, boottime: int) -> Reading:
        """All devices; one that fails yields its row with the error. Raises DriverFault."""
        reading = Reading(events=self._events.read(), troubles=self.nameless)
        # one device at a time, because the reading blocks
        due = (device for device in self.devices if not device.fault and device.history.pcie_due <= boottime)
        pcie = next(due, None)
        for device in self.devices:
            if device.fault is not None:
                reading.rows.append(device.row(device.fault))
                continue
            try:
                self._read_one(device, time, boottime, reading, device is pcie)
            except DeviceFault as fault:
                device.fault = fault.reason
                reading.rows.append(device.row(fault.reason))
                reading.events.append(
                    EventRow(event_type="gpu_lost", gpu_uuid=device.uuid, detail=fault.reason)
                )
        return reading

    def with_instances(self) -> list[Device]:
        """The devices, each followed by its MIG instances."""
        everything: list[Device] = []
        for device in self.devices:
            partitioned = device.fault is None and device.mig
            everything += [device, *(self._instances(device) if partitioned else [])]
        return everything

    def close(self) -> None:
        self._events.close()
        self._nvml.close()

    def _read_one(self, device: Device, time: datetime, boottime: int, reading: Reading, pcie: bool) -> None:
        instances = self._instances(device) if device.switch_mig() else []
        row = read_device(device, boottime)
        if pcie:
            device.history.pcie_due = boottime + _PCIE_PAUSE
            read_pcie(device, row)
        rows = [row, *(read_instance(instance) for instance in instances)]
        users = (instances or [device]) if self._processes else []
        uses = [use for each in users for use in read_processes(each, time)]
        # only now: a device that fails on the way has one row, which says so
        reading.rows.extend(rows)
        reading.uses.extend(uses)
        if device.returned:
            device.returned = False
            reading.events.append(EventRow(event_type="gpu_found", gpu_uuid=device.uuid))

    def _enumerate(self, before: list[Device]) -> list[Device]:
        try:
            count = self._nvml.call("nvmlDeviceGetCount")
        except GpuFault as fault:
            raise at_opening(fault) from None
        known = {device.index for device in before}
        faulty = {device.uuid for device in before if device.fault}
        devices = []
        for index in range(count):
            try:
                handle = self._nvml.call("nvmlDeviceGetHandleByIndex", index)
                uuid = self._nvml.call("nvmlDeviceGetUUID", handle)
            except (DeviceFault, ValueFault) as fault:
                if index not in known:
                    self.nameless.append((fault.reason, f"NVIDIA GPU number {index} could not be identified"))
                continue
            history = self._histories.setdefault(uuid, DeviceHistory())
            devices.append(Device(self._nvml, handle, uuid, index, history, returned=uuid in faulty))
        return devices

    def _instances(self, device: Device) -> list[Device]:
        """The MIG instances there are now; they are made and removed while jobs come and go."""
        instances = []
        for index in range(device.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = device.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            if handle is None:
                continue
            instance = Device(self._nvml, handle, "", index, device.history, parent=device.uuid)
            uuid = instance.ask("nvmlDeviceGetUUID")
            if uuid is not None:
                instance.uuid = uuid
                instances.append(instance)
        return instances


class NvidiaDriver:
    """The driver with its devices; every method may block in it."""

    def __init__(self, nvml: Nvml, processes: bool = True) -> None:
        self._nvml = nvml
        self._processes = processes
        self._session: NvidiaSession | None = None
        self._devices: list[Device] = []
        self._histories: dict[str, DeviceHistory] = {}
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
            session = NvidiaSession(self._nvml, self._devices, self._histories, self._processes)
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
        return Reading(rows=[device.row(fault.reason) for device in self._devices], fault=fault)
