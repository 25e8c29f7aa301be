"""How the files of a control group become fields of a container row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vmsonar_archive.records import ContainerDevice

FieldValue = int | str | bool | None | list[ContainerDevice]
Fields = dict[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one controller that are parsed together; each has its possible names, best first."""

    controller: str
    files: tuple[tuple[str, ...], ...]
    parse: Callable[..., Fields]
    #: Limits change by hand, if ever: once a minute is enough.
    rare: bool = False
    #: A flag of the row: while it is true there is nothing to count, and once a minute is enough too.
    unless: str = ""
    #: Unchanged while the container sleeps.
    tells_activity: bool = False


def number(text: bytes) -> int | None:
    """The one number of a file; None where it says `max` or nothing."""
    try:
        return int(text)
    except ValueError:
        return None


def picked(text: bytes, names: Mapping[bytes, str]) -> Fields:
    """The wanted ones among lines of a word and a number; a key is given with the characters around it."""
    text = b"\n" + text
    fields: Fields = {}
    for key, name in names.items():
        at = text.find(key)
        if at >= 0:
            begin = at + len(key)
            fields[name] = int(text[begin : text.find(b"\n", begin)])
    return fields


class DeviceTable:
    """Collects I/O per block device, whatever the order of its lines."""

    def __init__(self) -> None:
        self._devices: dict[bytes, ContainerDevice] = {}

    def __bool__(self) -> bool:
        return bool(self._devices)

    def put(self, device: bytes, name: str, value: int) -> None:
        row = self._devices.get(device)
        if row is None:
            major, _, minor = device.partition(b":")
            if not (major.isdigit() and minor.isdigit()):
                return
            row = self._devices[device] = ContainerDevice(device_major=int(major), device_minor=int(minor))
        setattr(row, name, value)

    def fields(self) -> Fields:
        """The devices and their sums; no device at all means that nothing was moved."""
        rows = list(self._devices.values())
        return {
            "read_bytes": sum(row.read_bytes or 0 for row in rows),
            "write_bytes": sum(row.write_bytes or 0 for row in rows),
            "devices": rows or None,
        }
