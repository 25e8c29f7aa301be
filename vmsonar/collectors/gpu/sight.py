"""What can be seen of GPUs here, what not, and what would change that."""

from collections.abc import Collection
from pathlib import Path

from vmsonar_archive.records import Capability

from vmsonar.collectors.gpu.drm import DrmSource
from vmsonar.collectors.gpu.nvidia import driver_version
from vmsonar.collectors.gpu.part import Part
from vmsonar.host import Host

_NVIDIA = "0x10de"
_REMEDIES = {
    "missing_extra": "pip install 'vmsonar[gpu]'",
    "library_version_mismatch": "reboot, or reload the NVIDIA kernel modules: the driver was upgraded",
    "library_not_found": "install the driver's library libnvidia-ml.so.1",
    "driver_not_loaded": "load the driver: modprobe nvidia",
    "timeout": "see the kernel's log for Xid lines; the GPU may need a reset",
}


def unloaded_nvidia(host: Host) -> bool:
    """Whether there is an NVIDIA display device on the PCI bus (class 03)."""
    found = (host.sys / "bus/pci/devices").glob("*/vendor")
    return any(
        _word(vendor) == _NVIDIA and _word(vendor.parent / "class").startswith("0x03") for vendor in found
    )


def capabilities(
    name: str, host: Host, vendors: Collection[str], nvidia: Part, drm: DrmSource
) -> list[Capability]:
    """One line per maker."""
    answer = [_nvidia(name, host, nvidia)] if "nvidia" in vendors else []
    drivers = {device.vendor for device in drm.devices()}
    for vendor in ("amd", "intel"):
        if vendor in vendors:
            seen = vendor in drivers
            reason = None if seen else f"no driver of an {vendor} GPU is loaded"
            answer.append(Capability(collector=name, item=f"{vendor} GPUs", available=seen, reason=reason))
    if drivers and not drm.sees_all_processes():
        answer.append(
            Capability(
                collector=name,
                item="GPU time of other users' processes",
                available=False,
                reason="/proc/PID/fdinfo of other users needs ptrace rights",
                remedy="give the unit AmbientCapabilities=CAP_SYS_PTRACE",
            )
        )
    return answer


def _nvidia(name: str, host: Host, part: Part) -> Capability:
    fault = part.last.fault
    if driver_version(host) is None:
        hardware = unloaded_nvidia(host)
        reason = "no NVIDIA driver is loaded"
        remedy = _REMEDIES["driver_not_loaded"] if hardware else None
    elif fault is not None:
        reason, remedy = fault.reason, _REMEDIES.get(fault.reason)
    else:
        return Capability(collector=name, item="nvidia GPUs", available=True)
    return Capability(collector=name, item="nvidia GPUs", available=False, reason=reason, remedy=remedy)


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
