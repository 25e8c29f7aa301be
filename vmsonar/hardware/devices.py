"""Disks and network interfaces as hardware (/sys/block, /sys/class/net)."""

from pathlib import Path

from vmsonar_archive.records import Disk, Interface

from vmsonar.collectors.files import read_text
from vmsonar.host import Host


def disks(host: Host) -> list[Disk]:
    """The block devices that have a size."""
    found = [_disk(path) for path in sorted((host.sys / "block").glob("*"))]
    return [disk for disk in found if disk.size]


def _disk(path: Path) -> Disk:
    rotational = read_text(path / "queue" / "rotational")
    sectors = read_text(path / "size")
    return Disk(
        device=path.name.replace("!", "/"),
        model=read_text(path / "device" / "model") or None,
        size=int(sectors) * 512 if sectors else None,
        rotational=None if rotational is None else rotational == "1",
    )


def interfaces(host: Host) -> list[Interface]:
    """The network interfaces; a virtual one has no speed."""
    return [_interface(path) for path in sorted((host.sys / "class" / "net").glob("*")) if path.is_dir()]


def _interface(path: Path) -> Interface:
    speed = read_text(path / "speed")  # EINVAL while the link is down, -1 where it makes no sense
    driver = path / "device" / "driver"
    return Interface(
        interface=path.name,
        address=read_text(path / "address") or None,
        speed=int(speed) if speed and speed.isdigit() else None,
        driver=driver.resolve().name if driver.exists() else None,
    )
