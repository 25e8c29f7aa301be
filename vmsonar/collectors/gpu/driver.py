"""Whether there is a driver to ask, found out without touching it."""

import os
import re
from pathlib import Path

from vmsonar.collectors.files import read_text
from vmsonar.host import Host

_CARD = re.compile(r"card[0-9]+")
_NVIDIA, _DISPLAY = "0x10de", "0x03"


def driver_version(host: Host) -> str | None:
    """The text that NVIDIA's loaded driver shows, or None where none is loaded."""
    try:
        return (host.proc / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return "" if (host.sys / "module/nvidia/initstate").exists() else None


def nvidia_hardware(host: Host) -> bool:
    """Whether there is an NVIDIA display device on the PCI bus."""
    devices = [path.parent for path in (host.sys / "bus/pci/devices").glob("*/vendor")]
    nvidia = [device for device in devices if read_text(device / "vendor") == _NVIDIA]
    return any((read_text(device / "class") or "").startswith(_DISPLAY) for device in nvidia)


def card_names(sys: Path) -> list[str]:
    """The names of the DRM cards, without their connectors."""
    try:
        return sorted(name for name in os.listdir(sys / "class/drm") if _CARD.fullmatch(name))
    except OSError:
        return []
