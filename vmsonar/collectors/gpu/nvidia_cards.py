"""NVIDIA GPUs as hardware, for sysinfo."""

import re
from contextlib import suppress

from vmsonar_archive.records import Card

from vmsonar.collectors.gpu.faults import DeviceFault, GpuFault
from vmsonar.collectors.gpu.gate import Nvml
from vmsonar.collectors.gpu.nvidia_device import Device, in_range

_CLOCK_SM, _CLOCK_MEMORY = 1, 2
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
    card.core_clock_max = device.number("nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
    card.memory_clock_max = device.number("nvmlDeviceGetMaxClockInfo", _CLOCK_MEMORY)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
