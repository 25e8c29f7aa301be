"""The identity of this machine, and whether it has changed (machine-id(5), cloud-init's files, DMI)."""

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.records.ids import HostName, InstanceId, MachineId, StampId

from vmsonar.host.files import KeptFile, read_text, stamp_of
from vmsonar.host.roots import Host


def _read(path: Path, kind: Any) -> str | None:
    """An id of that kind; what a reader of the archive would refuse is not written into it."""
    try:
        return cast(str, msgspec.convert(read_text(path), kind)) or None
    except msgspec.ValidationError:
        return None


def boot_id(host: Host) -> str:
    """The kernel's id of this boot, as it writes it; all zeros where it is hidden."""
    return _read(host.proc / "sys" / "kernel" / "random" / "boot_id", StampId) or str(UUID(int=0))


def machine_id(host: Host) -> str:
    """The machine id, or the boot id on an image whose id is not set yet."""
    for path in (host.etc / "machine-id", host.run / "machine-id"):
        text = _read(path, MachineId)
        if text is not None and text != "uninitialized":
            return text
    return boot_id(host)


def instance_id(host: Host) -> str | None:
    """The cloud's id of this instance, where cloud-init or the board tells it to everyone."""
    text = _read(host.run / "cloud-init" / ".instance-id", InstanceId)
    if text and not text.startswith("iid-datasource-none"):
        return text
    tag = _read(host.sys / "class" / "dmi" / "id" / "board_asset_tag", InstanceId) or ""
    return tag if tag.startswith("i-") else None


def hostname(host: Host) -> str | None:
    """The host name as the kernel has it."""
    return _read(host.proc / "sys" / "kernel" / "hostname", HostName)


def node_identity(host: Host) -> NodeIdentity:
    """All of it, read anew."""
    full = hostname(host)
    return NodeIdentity(
        machine_id=machine_id(host),
        instance_id=instance_id(host),
        hostname_short=full.partition(".")[0] if full else None,
        hostname_full=full,
    )


class IdentityChange(NamedTuple):
    """A machine that is called, or is, something else than before."""

    before: NodeIdentity
    after: NodeIdentity

    @property
    def detail(self) -> str:
        names = NodeIdentity.__struct_fields__
        pairs = [(name, getattr(self.before, name), getattr(self.after, name)) for name in names]
        return ", ".join(f"{name}: {old} -> {new}" for name, old, new in pairs if old != new)


class IdentityWatch:
    """Looks at every tick, for a few microseconds, whether the machine is still the one it was."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._hostname = KeptFile(host.proc / "sys" / "kernel" / "hostname")
        self._files = (host.etc / "machine-id", host.run / "cloud-init" / ".instance-id")
        self._marks = self._look()
        self.node = node_identity(host)

    def change(self) -> IdentityChange | None:
        """What changed since the last call."""
        marks = self._look()
        if marks == self._marks:
            return None
        self._marks = marks
        before, self.node = self.node, node_identity(self._host)
        if self.node.instance_id is None and before.instance_id is not None:
            # cloud-init removes its file for a moment while it runs again
            self.node = msgspec.structs.replace(self.node, instance_id=before.instance_id)
        return IdentityChange(before, self.node) if before != self.node else None

    def _look(self) -> tuple[object, ...]:
        hostname = b""
        with suppress(OSError):
            hostname = self._hostname.read()
        return (hostname, *map(stamp_of, self._files))

    def close(self) -> None:
        self._hostname.close()
