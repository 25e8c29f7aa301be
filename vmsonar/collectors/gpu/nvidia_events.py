"""XID errors, which the driver queues as events (nvmlEventSetWait)."""

import ctypes
from typing import Any

from vmsonar_archive.records import EventRow

from vmsonar.collectors.gpu.faults import DriverFault, GpuFault
from vmsonar.collectors.gpu.gate import Nvml
from vmsonar.collectors.gpu.nvidia_device import Device

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
                # a timeout is the usual answer: there is none
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
