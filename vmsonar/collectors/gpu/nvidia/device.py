"""One NVIDIA GPU, or one MIG instance of it, read into a row, and as hardware for sysinfo."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vmsonar_archive.records import Card, GpuRow

from vmsonar.collectors.gpu.faults import DeviceFault, GpuFault, ValueFault
from vmsonar.collectors.gpu.nvidia.gate import Nvml
from vmsonar.collectors.gpu.reading import Integrator

_NOT_AVAILABLE_32 = 0xFFFFFFFF
_LARGEST = (1 << 63) - 1
# nvmlMemory_v2: version 2 in the upper byte, the size of the structure below.
_MEMORY_V2 = 0x02000028
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_TEMPERATURE_GPU = 0
_CORRECTED, _UNCORRECTED, _SINCE_LOAD = 0, 1, 0
_PCIE_SENT, _PCIE_RECEIVED = 0, 1
_UNKNOWN_STATE = 32
_COMPUTE_MODES = {0: "default", 1: "exclusive", 2: "prohibited", 3: "exclusive"}
# Each reading blocks for 20 ms, so it is made rarely.
PCIE_PAUSE = 300 * 1_000_000_000


@dataclass(slots=True)
class Memory:
    """What is remembered of a GPU, also when the driver is opened anew."""

    integrator: Integrator = field(default_factory=Integrator)
    #: Timestamp in µs of the newest utilisation sample seen.
    sampled: int = 0
    pcie_due: int = 0


@dataclass(slots=True)
class Device:
    """A handle with what identifies it."""

    nvml: Nvml
    handle: Any
    uuid: str
    index: int
    memory: Memory
    parent: str | None = None
    #: Why it cannot be read; stays until the driver is opened anew.
    fault: str | None = None
    #: It had been lost and is there again, which has not been told yet.
    returned: bool = False
    mig: bool = False
    #: Why the last value that should be there was not.
    trouble: str | None = None
    _absent: set[tuple[Any, ...]] = field(default_factory=set)

    def ask(self, name: str, *arguments: Any) -> Any:
        """The driver's answer, or None where it has none; what it does not support is asked once."""
        return self.ask_once((name, arguments), name, *arguments)

    def ask_once(self, key: tuple[Any, ...], name: str, *arguments: Any) -> Any:
        """The same, remembering what is not supported by this key: for arguments that differ each time."""
        if key in self._absent:
            return None
        try:
            return self.nvml.call(name, self.handle, *arguments)
        except ValueFault as fault:
            self._note(fault, key)
            return None

    def processes(self, name: str) -> list[tuple[int, int]] | None:
        """The processes that a function lists, or None where it is not supported."""
        if (name,) in self._absent:
            return None
        try:
            return self.nvml.processes(name, self.handle)
        except ValueFault as fault:
            self._note(fault, (name,))
            return None

    def _note(self, fault: ValueFault, key: tuple[Any, ...]) -> None:
        if fault.lasting:
            self._absent.add(key)
        else:
            self.trouble = fault.reason

    def number(self, name: str, *arguments: Any) -> int | None:
        """A 32-bit reading; all bits set mean that there is none."""
        value = self.ask(name, *arguments)
        return None if value is None or value == _NOT_AVAILABLE_32 else int(value)

    def switch_mig(self) -> bool:
        """Whether the GPU is partitioned now; what it supports changes with that."""
        modes = self.ask("nvmlDeviceGetMigMode")
        mig = modes is not None and modes[0] == 1
        if mig != self.mig:
            self._absent.clear()
            self.mig = mig
        return mig

    def faulty_row(self, reason: str) -> GpuRow:
        return GpuRow(
            gpu_uuid=self.uuid, gpu_index=self.index, parent_uuid=self.parent, vendor="nvidia", error=reason
        )


def read_instance(device: Device) -> GpuRow:
    """A MIG instance: only its memory is its own."""
    row = GpuRow(gpu_uuid=device.uuid, gpu_index=device.index, parent_uuid=device.parent, vendor="nvidia")
    _read_memory(device, row)
    return row


def read_device(device: Device, boottime: int) -> GpuRow:
    """A whole GPU; raises DeviceFault or DriverFault."""
    row = GpuRow(gpu_uuid=device.uuid, gpu_index=device.index, vendor="nvidia")
    device.trouble = None
    _read_memory(device, row)
    _read_use(device, row)
    _read_power(device, row, boottime)
    _read_state(device, row)
    _read_errors(device, row)
    if row.memory_total is None and row.power is None:
        # nothing that every GPU has: the driver does not answer for it
        row.error = device.trouble
    return row


def read_pcie(device: Device, row: GpuRow) -> None:
    """PCIe traffic over 20 ms each way; blocks for as long."""
    row.pcie_received = device.number("nvmlDeviceGetPcieThroughput", _PCIE_RECEIVED)
    row.pcie_sent = device.number("nvmlDeviceGetPcieThroughput", _PCIE_SENT)


def in_range(value: int | None) -> int | None:
    """The value, or None for one of the driver's ways to say that it has none."""
    return value if value is not None and 0 <= value <= _LARGEST else None


def _read_memory(device: Device, row: GpuRow) -> None:
    found = device.ask("nvmlDeviceGetMemoryInfo", _MEMORY_V2)
    if found is not None:
        row.memory_reserved = in_range(found.reserved)
    else:
        found = device.ask("nvmlDeviceGetMemoryInfo")
    if found is not None:
        row.memory_used = in_range(found.used)
        row.memory_total = in_range(found.total)


def _read_use(device: Device, row: GpuRow) -> None:
    rates = device.ask("nvmlDeviceGetUtilizationRates")
    if rates is not None and rates.gpu <= 100:
        row.gpu_util = rates.gpu
        row.gpu_util_source = "nvml_utilization"
        row.memory_util = rates.memory if rates.memory <= 100 else None


def _read_power(device: Device, row: GpuRow, boottime: int) -> None:
    row.power = _thousandth(device.number("nvmlDeviceGetPowerUsage"))
    row.power_limit = _thousandth(device.number("nvmlDeviceGetEnforcedPowerLimit"))
    millijoules = in_range(device.ask("nvmlDeviceGetTotalEnergyConsumption"))
    if millijoules is not None:
        row.energy, row.energy_source = millijoules * 1000, "counter"
    elif (integrated := device.memory.integrator.add(boottime, row.power)) is not None:
        row.energy, row.energy_source = integrated, "power_integrated"


def _read_state(device: Device, row: GpuRow) -> None:
    row.temperature = device.number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
    row.fan = device.number("nvmlDeviceGetFanSpeed")
    state = device.number("nvmlDeviceGetPerformanceState")
    row.performance_state = None if state == _UNKNOWN_STATE else state
    row.compute_mode = _COMPUTE_MODES.get(device.ask("nvmlDeviceGetComputeMode"))
    row.core_clock = device.number("nvmlDeviceGetClockInfo", _CLOCK_SM)
    row.memory_clock = device.number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY)
    row.clock_reasons = in_range(_clock_reasons(device))


def _clock_reasons(device: Device) -> int | None:
    reasons: int | None = device.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        # its name before driver 535
        reasons = device.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return reasons


def _read_errors(device: Device, row: GpuRow) -> None:
    row.ecc_corrected = in_range(device.ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _SINCE_LOAD))
    row.ecc_uncorrected = in_range(device.ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOAD))
    remapped = device.ask("nvmlDeviceGetRemappedRows")
    row.remapped_rows = remapped[0] + remapped[1] if remapped is not None else None


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def lost(device: Device, fault: DeviceFault) -> GpuRow:
    """Marks the device as unreadable and says so in its row."""
    device.fault = fault.reason
    return device.faulty_row(fault.reason)


_SM_CLOCK, _MEMORY_CLOCK = 1, 2
#: NVML_DEVICE_ARCH_* of nvml.h.
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
}


def read_cards(nvml: Nvml, devices: list[Device]) -> list[Card]:
    """One card per device; one that cannot be read has its identity only."""
    driver = _driver(nvml)
    return [_card(device, driver) for device in devices]


def bus_address(text: str) -> str:
    """The address as the kernel writes it: the driver pads the domain to eight digits."""
    return re.sub(r"^0{4}(?=[0-9a-f]{4}:)", "", text.lower())


def _driver(nvml: Nvml) -> str | None:
    try:
        return str(nvml.call("nvmlSystemGetDriverVersion"))
    except GpuFault:
        return None


def _card(device: Device, driver: str | None) -> Card:
    card = Card(
        gpu_uuid=device.uuid,
        gpu_index=device.index,
        parent_uuid=device.parent,
        vendor="nvidia",
        driver=driver,
    )
    if device.fault is None:
        with suppress(DeviceFault):
            _describe(device, card)
    return card


def _describe(device: Device, card: Card) -> None:
    card.model = device.ask("nvmlDeviceGetName")
    card.architecture = _ARCHITECTURES.get(device.ask("nvmlDeviceGetArchitecture"))
    pci = device.ask("nvmlDeviceGetPciInfo")
    card.bus_address = bus_address(_text(pci.busId)) if pci is not None else None
    memory = device.ask("nvmlDeviceGetMemoryInfo")
    card.memory = in_range(memory.total) if memory is not None else None
    card.firmware = device.ask("nvmlDeviceGetVbiosVersion")
    card.power_limit = _watts(device.number("nvmlDeviceGetEnforcedPowerLimit"))
    limits = device.ask("nvmlDeviceGetPowerManagementLimitConstraints")
    if limits is not None:
        card.power_limit_min, card.power_limit_max = _watts(limits[0]), _watts(limits[1])
    card.core_clock_max = device.number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)
    card.memory_clock_max = device.number("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
