"""The NVIDIA driver from one opening to the next: its devices and what they say."""

from datetime import datetime

from vmsonar_archive.records import EventRow

from vmsonar.collectors.gpu.faults import DeviceFault, DriverFault, GpuFault, at_opening
from vmsonar.collectors.gpu.gate import Nvml
from vmsonar.collectors.gpu.nvidia_device import (
    PCIE_PAUSE,
    Device,
    Memory,
    lost,
    read_device,
    read_instance,
    read_pcie,
)
from vmsonar.collectors.gpu.nvidia_events import XidEvents
from vmsonar.collectors.gpu.nvidia_processes import read_processes
from vmsonar.collectors.gpu.reading import Reading, Use


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
        uses: list[Use] = []
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
