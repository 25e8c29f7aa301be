"""The NVIDIA driver from one opening to the next: its devices, their processes and XID events."""

import ctypes
from datetime import datetime
from struct import Struct
from typing import Any

from vmsonar_archive.records import EventRow

from vmsonar.collectors.gpu.faults import DeviceFault, DriverFault, GpuFault, at_opening
from vmsonar.collectors.gpu.nvidia.device import (
    PCIE_PAUSE,
    Device,
    Memory,
    in_range,
    lost,
    read_device,
    read_instance,
    read_pcie,
)
from vmsonar.collectors.gpu.nvidia.gate import Nvml
from vmsonar.collectors.gpu.reading import GpuUse, Reading

_XID = 0x8
# A GPU in trouble can raise them without end.
_MOST = 64


class XidEvents:
    """The event set of one opened driver; it is asked, never waited for."""

    def __init__(self, nvml: Nvml, devices: list[Device]) -> None:
        self._nvml = nvml
        self._uuids = {_address(device.handle): device.uuid for device in devices}
        self._set = self._create(devices)

    def read(self) -> list[EventRow]:
        """What was raised since the last time."""
        events: list[EventRow] = []
        while self._set is not None and len(events) < _MOST:
            try:
                data = self._nvml.call("nvmlEventSetWait_v2", self._set, 0)
            except GpuFault:
                # a timeout is the usual answer: no event
                break
            if data.eventType & _XID:
                events.append(self._row(data))
        return events

    def close(self) -> None:
        if self._set is None:
            return
        try:
            self._nvml.call("nvmlEventSetFree", self._set)
        except GpuFault:
            return
        finally:
            self._set = None

    def _create(self, devices: list[Device]) -> Any:
        try:
            events = self._nvml.call("nvmlEventSetCreate")
        except DriverFault:
            raise
        except GpuFault:
            return None
        for device in devices:
            device.ask_once(("events",), "nvmlDeviceRegisterEvents", _XID, events)
        return events

    def _row(self, data: Any) -> EventRow:
        uuid = self._uuids.get(_address(data.device))
        return EventRow(event_type="gpu_xid", gpu_uuid=uuid, code=data.eventData)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# At the first reading the driver's buffer holds the past: only this many µs of it count.
_FIRST_WINDOW = 10_000_000
#: nvmlProcessUtilizationSample_t: process, time in µs, share of the compute engines and of memory.
_SAMPLE = Struct("@IQII8x")


def read_processes(device: Device, time: datetime) -> list[GpuUse]:
    """The processes of one GPU or MIG instance, in order of their ids."""
    uses: dict[int, GpuUse] = {}
    for usage, function in _LISTS:
        for pid, memory in _running(device, function):
            _note(uses, GpuUse(device.uuid, pid), usage, in_range(memory))
    if device.parent is None:
        _add_utilisation(device, uses, round(time.timestamp() * 1e6))
    return [uses[pid] for pid in sorted(uses)]


def _running(device: Device, function: str) -> list[tuple[int, int]]:
    found = device.processes(f"{function}_v3")
    if found is None:
        # driver 470 and before
        found = device.processes(f"{function}_v2")
    return found or []


def _note(uses: dict[int, GpuUse], use: GpuUse, usage: str, memory: int | None) -> None:
    use = uses.setdefault(use.pid, use)
    if usage not in use.usages:
        use.usages.append(usage)
    if memory is not None:
        # a process in two lists is shown with the same memory in both
        use.memory = max(memory, use.memory or 0)


def _add_utilisation(device: Device, uses: dict[int, GpuUse], now: int) -> None:
    since = device.memory.sampled
    if not 0 < since <= now + _FIRST_WINDOW:
        # the first time, or the clock was set back
        since = now - _FIRST_WINDOW
    for _, pid, share, memory_share in _fresh_samples(device, since):
        use = uses.get(pid)
        if use is None:
            use = uses[pid] = GpuUse(device.uuid, pid)
        use.gpu_util, use.memory_util = share, memory_share
        use.util_source = "nvml_process_samples"


def _fresh_samples(device: Device, since: int) -> list[tuple[int, int, int, int]]:
    """The driver's samples in order of time, without those that are old or impossible."""
    name = "nvmlDeviceGetProcessUtilization"
    found = device.ask_once((name,), name, since) or []
    # pynvml's structures are slow to ask for single fields: that was a third of the cost of a sample
    fields = [_SAMPLE.unpack(each) for each in found]
    fresh = sorted((time, pid, sm, memory) for pid, time, sm, memory in fields if time > since)
    if fresh:
        device.memory.sampled = fresh[-1][0]
    return [each for each in fresh if each[2] <= 100 and each[3] <= 100]


class NvidiaSession:
    """An opened driver; `before` are the devices known from an earlier opening."""

    def __init__(
        self, nvml: Nvml, before: list[Device], memories: dict[str, Memory], processes: bool
    ) -> None:
        self._nvml = nvml
        self._memories = memories
        self._processes = processes
        #: Devices that the driver counts and will not name: the reason and the number in words.
        self.nameless: list[tuple[str, str]] = []
        present = self._enumerate(before)
        self._events = XidEvents(nvml, present)
        self.devices = sorted(present + _missing(before, present), key=lambda device: device.index)

    @property
    def has_lost(self) -> bool:
        return any(device.fault for device in self.devices) or bool(self.nameless)

    def read(self, time: datetime, boottime: int) -> Reading:
        """All devices; one that fails yields its row with the error. Raises DriverFault."""
        reading = Reading(events=self._events.read(), troubles=self.nameless)
        pcie = self._due_for_pcie(boottime)
        for device in self.devices:
            if device.fault is not None:
                reading.rows.append(device.faulty_row(device.fault))
                continue
            try:
                self._read_one(device, time, boottime, reading, device is pcie)
            except DeviceFault as fault:
                reading.rows.append(lost(device, fault))
                reading.events.append(_event("gpu_lost", device, fault.reason))
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
            device.memory.pcie_due = boottime + PCIE_PAUSE
            read_pcie(device, row)
        rows = [row, *(read_instance(instance) for instance in instances)]
        uses: list[GpuUse] = []
        for each in (instances or [device]) if self._processes else []:
            uses.extend(read_processes(each, time))
        reading.rows.extend(rows)
        reading.uses.extend(uses)
        if device.returned:
            device.returned = False
            reading.events.append(_event("gpu_found", device, None))

    def _due_for_pcie(self, boottime: int) -> Device | None:
        """One device at a time, because the reading blocks."""
        due = (device for device in self.devices if not device.fault and device.memory.pcie_due <= boottime)
        return next(due, None)

    def _enumerate(self, before: list[Device]) -> list[Device]:
        try:
            count = self._nvml.call("nvmlDeviceGetCount")
        except GpuFault as fault:
            raise at_opening(fault) from None
        faulty = {device.uuid for device in before if device.fault}
        found = [self._device(index) for index in range(count)]
        devices = [device for device in found if device is not None]
        for device in devices:
            device.returned = device.uuid in faulty
        known = {_number(device.index) for device in before}
        self.nameless = [(reason, number) for reason, number in self.nameless if number not in known]
        return devices

    def _device(self, index: int) -> Device | None:
        try:
            handle = self._nvml.call("nvmlDeviceGetHandleByIndex", index)
            uuid = self._nvml.call("nvmlDeviceGetUUID", handle)
        except DriverFault:
            raise
        except GpuFault as fault:
            self.nameless.append((fault.reason, _number(index)))
            return None
        return Device(self._nvml, handle, uuid, index, self._memories.setdefault(uuid, Memory()))

    def _instances(self, device: Device) -> list[Device]:
        """The MIG instances there are now; they are made and removed while jobs come and go."""
        instances = []
        for index in range(device.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = device.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            if handle is None:
                continue
            instance = Device(self._nvml, handle, "", index, device.memory, parent=device.uuid)
            uuid = instance.ask("nvmlDeviceGetUUID")
            if uuid is not None:
                instance.uuid = uuid
                instances.append(instance)
        return instances


def _missing(before: list[Device], present: list[Device]) -> list[Device]:
    """Devices that were there at an earlier opening and are not now: they stay, as lost."""
    uuids = {device.uuid for device in present}
    gone = [device for device in before if device.uuid not in uuids]
    for device in gone:
        device.fault = device.fault or "gpu_not_found"
    return gone


def _event(event_type: str, device: Device, detail: str | None) -> EventRow:
    return EventRow(event_type=event_type, gpu_uuid=device.uuid, detail=detail)


def _number(index: int) -> str:
    return f"NVIDIA GPU number {index} could not be identified"
