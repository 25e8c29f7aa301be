"""One NVIDIA GPU, or one MIG instance of it: its row, the processes on it, and as hardware for sysinfo."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from struct import Struct
from typing import Any

from vmsonar_archive.records import Card, GpuProcessRow, GpuRow

from vmsonar.collectors.gpu.collector import DeviceFault, GpuFault, Integrator, UnsupportedFault, ValueFault
from vmsonar.collectors.gpu.nvidia.nvml import Nvml

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
#: NVML_DEVICE_ARCH_* of nvml.h, from 2.
_ARCHITECTURES = dict(
    enumerate(
        ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"), start=2
    )
)
_PROCESS_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# At the first reading the driver's buffer holds the past: only this many µs of it count.
_FIRST_WINDOW = 10_000_000
#: nvmlProcessUtilizationSample_t: process, time in µs, share of the compute engines and of memory.
_SAMPLE = Struct("@IQII8x")


@dataclass(slots=True)
class DeviceHistory:
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
    history: DeviceHistory
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
        return self._try((name, arguments), self.nvml.call, name, self.handle, *arguments)

    def ask_by_name(self, name: str, *arguments: Any) -> Any:
        """The same for arguments that differ each time: by its name alone it is known as not supported."""
        return self._try((name,), self.nvml.call, name, self.handle, *arguments)

    def processes(self, name: str) -> list[tuple[int, int]] | None:
        """The processes that a function lists, or None where it is not supported."""
        found: list[tuple[int, int]] | None = self._try((name,), self.nvml.processes, name, self.handle)
        return found

    def _try(self, key: tuple[Any, ...], call: Callable[..., Any], *arguments: Any) -> Any:
        if key in self._absent:
            return None
        try:
            return call(*arguments)
        except UnsupportedFault:
            self._absent.add(key)
        except ValueFault as fault:
            self.trouble = fault.reason
        return None

    def number(self, name: str, *arguments: Any) -> int | None:
        """A 32-bit reading; all bits set mean that there is none."""
        value = self.ask(name, *arguments)
        return None if value is None or value == _NOT_AVAILABLE_32 else int(value)

    def watts(self, name: str) -> float | None:
        """A reading in milliwatts."""
        value = self.number(name)
        return None if value is None else value / 1000

    def switch_mig(self) -> bool:
        """Whether the GPU is partitioned now; what it supports changes with that."""
        modes = self.ask("nvmlDeviceGetMigMode")
        mig = modes is not None and modes[0] == 1
        if mig != self.mig:
            self._absent.clear()
            self.mig = mig
        return mig

    def row(self, error: str | None = None) -> GpuRow:
        return GpuRow(
            gpu_uuid=self.uuid, gpu_index=self.index, parent_uuid=self.parent, vendor="nvidia", error=error
        )


def read_instance(device: Device) -> GpuRow:
    """A MIG instance: only its memory is its own."""
    row = device.row()
    found = device.ask("nvmlDeviceGetMemoryInfo", _MEMORY_V2)
    if found is not None:
        row.memory_reserved = in_range(found.reserved)
    else:
        found = device.ask("nvmlDeviceGetMemoryInfo")
    if found is not None:
        row.memory_used = in_range(found.used)
        row.memory_total = in_range(found.total)
    return row


def read_device(device: Device, boottime: int) -> GpuRow:
    """A whole GPU; raises DeviceFault or DriverFault."""
    device.trouble = None
    row = read_instance(device)
    rates = device.ask("nvmlDeviceGetUtilizationRates")
    if rates is not None and rates.gpu <= 100:
        row.gpu_util = rates.gpu
        row.gpu_util_source = "nvml_utilization"
        row.memory_util = rates.memory if rates.memory <= 100 else None
    _read_power(device, row, boottime)
    row.temperature = device.number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
    row.fan = device.number("nvmlDeviceGetFanSpeed")
    state = device.number("nvmlDeviceGetPerformanceState")
    row.performance_state = None if state == _UNKNOWN_STATE else state
    row.compute_mode = _COMPUTE_MODES.get(device.ask("nvmlDeviceGetComputeMode"))
    row.core_clock = device.number("nvmlDeviceGetClockInfo", _CLOCK_SM)
    row.memory_clock = device.number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY)
    reasons = device.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        # its name before driver 535
        reasons = device.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    row.clock_reasons = in_range(reasons)
    row.ecc_corrected = in_range(device.ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _SINCE_LOAD))
    row.ecc_uncorrected = in_range(device.ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOAD))
    remapped = device.ask("nvmlDeviceGetRemappedRows")
    row.remapped_rows = remapped[0] + remapped[1] if remapped is not None else None
    if row.memory_total is None and row.power is None:
        # nothing that every GPU has: the driver does not answer for it
        row.error = device.trouble
    return row


def _read_power(device: Device, row: GpuRow, boottime: int) -> None:
    row.power = device.watts("nvmlDeviceGetPowerUsage")
    row.power_limit = device.watts("nvmlDeviceGetEnforcedPowerLimit")
    millijoules = in_range(device.ask("nvmlDeviceGetTotalEnergyConsumption"))
    if millijoules is not None:
        row.energy, row.energy_source = millijoules * 1000, "counter"
    elif (integrated := device.history.integrator.add(boottime, row.power)) is not None:
        row.energy, row.energy_source = integrated, "power_integrated"


def read_pcie(device: Device, row: GpuRow) -> None:
    """PCIe traffic over 20 ms each way; blocks for as long."""
    row.pcie_received = device.number("nvmlDeviceGetPcieThroughput", _PCIE_RECEIVED)
    row.pcie_sent = device.number("nvmlDeviceGetPcieThroughput", _PCIE_SENT)


def in_range(value: int | None) -> int | None:
    """The value, or None for one of the driver's ways to say that it has none."""
    return value if value is not None and 0 <= value <= _LARGEST else None


def read_processes(device: Device, time: datetime) -> list[GpuProcessRow]:
    """The processes of one GPU or MIG instance, in order of their ids."""
    uses: dict[int, GpuProcessRow] = {}
    for usage, function in _PROCESS_LISTS:
        found = device.processes(f"{function}_v3")
        if found is None:
            # driver 470 and before
            found = device.processes(f"{function}_v2") or []
        for pid, size in found:
            use = uses.setdefault(pid, GpuProcessRow(gpu_uuid=device.uuid, pid=pid))
            if usage not in (use.usage or "").split("+"):
                use.usage = f"{use.usage}+{usage}" if use.usage else usage
            if (memory := in_range(size)) is not None:
                # a process in two lists is shown with the same memory in both
                use.memory_used = max(memory, use.memory_used or 0)
    if device.parent is None:
        _add_utilisation(device, uses, round(time.timestamp() * 1e6))
    return [uses[pid] for pid in sorted(uses)]


def _add_utilisation(device: Device, uses: dict[int, GpuProcessRow], now: int) -> None:
    """From the driver's samples in order of time, without those that are old or impossible."""
    since = device.history.sampled
    if not 0 < since <= now + _FIRST_WINDOW:
        # the first time, or the clock was set back
        since = now - _FIRST_WINDOW
    found = device.ask_by_name("nvmlDeviceGetProcessUtilization", since) or []
    # pynvml's structures are slow to ask for single fields: that was a third of the cost of a sample
    fields = [_SAMPLE.unpack(each) for each in found]
    fresh = sorted((time, pid, sm, memory) for pid, time, sm, memory in fields if time > since)
    if fresh:
        device.history.sampled = fresh[-1][0]
    for _, pid, share, memory_share in fresh:
        if share <= 100 and memory_share <= 100:
            use = uses.setdefault(pid, GpuProcessRow(gpu_uuid=device.uuid, pid=pid))
            use.gpu_util, use.memory_util = share, memory_share
            use.gpu_util_source = "nvml_process_samples"


def read_cards(nvml: Nvml, devices: list[Device]) -> list[Card]:
    """One card per device; one that cannot be read has its identity only."""
    driver = None
    with suppress(GpuFault):
        driver = str(nvml.call("nvmlSystemGetDriverVersion"))
    cards = []
    for device in devices:
        card = Card(
            gpu_uuid=device.uuid,
            gpu_index=device.index,
            parent_uuid=device.parent,
            vendor="nvidia",
            driver=driver,
        )
        cards.append(card)
        if device.fault is None:
            with suppress(DeviceFault):
                _describe(device, card)
    return cards


def _describe(device: Device, card: Card) -> None:
    card.model = device.ask("nvmlDeviceGetName")
    card.architecture = _ARCHITECTURES.get(device.ask("nvmlDeviceGetArchitecture"))
    if (pci := device.ask("nvmlDeviceGetPciInfo")) is not None:
        address = pci.busId.decode(errors="replace") if isinstance(pci.busId, bytes) else pci.busId
        # as the kernel writes it: the driver pads the domain to eight digits
        card.bus_address = re.sub(r"^0{4}(?=[0-9a-f]{4}:)", "", address.lower())
    if (memory := device.ask("nvmlDeviceGetMemoryInfo")) is not None:
        card.memory = in_range(memory.total)
    card.firmware = device.ask("nvmlDeviceGetVbiosVersion")
    card.power_limit = device.watts("nvmlDeviceGetEnforcedPowerLimit")
    if (limits := device.ask("nvmlDeviceGetPowerManagementLimitConstraints")) is not None:
        card.power_limit_min, card.power_limit_max = limits[0] / 1000, limits[1] / 1000
    card.core_clock_max = device.number("nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
    card.memory_clock_max = device.number("nvmlDeviceGetMaxClockInfo", _CLOCK_MEMORY)
