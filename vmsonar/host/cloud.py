"""The cloud and instance type without a network (DMI, cloud-init), and the notice that this VM is about to go."""

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from vmsonar_archive.records import EventRow
from vmsonar_archive.system.errors import NOT_JSON

from vmsonar.host.files import read_text, stamp_of
from vmsonar.host.roots import Host

# What the vendors write into sys_vendor, product_name, chassis_asset_tag or bios_vendor.
_PROVIDERS = (
    ("aws", r"amazon ec2|\bamazon\b"),
    ("gcp", r"google compute engine|\bgoogle\b"),
    ("azure", r"7783-7084-3265-9085-8269-3286-77"),
    ("oracle", r"oraclecloud\.com"),
    ("alibaba", r"alibaba cloud"),
    ("tencent", r"tencent cloud"),
    ("digitalocean", r"digitalocean"),
    ("hetzner", r"hetzner"),
    ("scaleway", r"scaleway"),
    ("vultr", r"vultr"),
    ("openstack", r"openstack"),
)
_HYPERVISORS = (
    ("kvm", r"kvm|qemu|openstack|amazon ec2|google|digitalocean|hetzner|alibaba|scaleway"),
    ("vmware", r"vmware"),
    ("hyperv", r"microsoft corporation"),
    ("xen", r"\bxen\b"),
    ("virtualbox", r"innotek|virtualbox"),
    ("parallels", r"parallels"),
    ("bhyve", r"bhyve"),
)
_DMI = ("sys_vendor", "product_name", "product_version", "chassis_asset_tag", "bios_vendor", "board_vendor")


class Cloud(NamedTuple):
    """Where the machine runs, as far as it knows itself."""

    cloud_provider: str | None = None
    instance_type: str | None = None
    region: str | None = None


def cloud(host: Host) -> Cloud:
    """From cloud-init's data where there is any, else from the firmware."""
    text = read_text(host.run / "cloud-init" / "instance-data.json")
    try:
        data = _mapping(msgspec.json.decode(text)) if text else {}
    except NOT_JSON:
        data = {}
    v1 = _mapping(data.get("v1"))
    meta = _mapping(_mapping(data.get("ds")).get("meta_data"))
    provider = _word(v1.get("cloud_name")) or _first_match(_PROVIDERS, _dmi_text(host))
    flavour = _word(v1.get("instance_type")) or _word(meta.get("instance_type"))
    if not flavour and provider == "aws":
        # only AWS writes the flavour into the firmware, as the name of the product
        product = read_text(host.sys / "class" / "dmi" / "id" / "product_name") or ""
        flavour = product if re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", product) else None
    return Cloud(
        cloud_provider=None if provider in ("unknown", "none", "nocloud") else provider,
        instance_type=flavour,
        region=_word(v1.get("region")) or _word(v1.get("availability_zone")),
    )


def virtualization(host: Host) -> str | None:
    """What kind of machine this is; `none` is a machine of metal, None is not known."""
    # systemd.io/CONTAINER_INTERFACE, and what podman and docker leave behind
    marks = [host.run / "systemd" / "container", host.run / ".containerenv"]
    marks += [Path("/.dockerenv")] if host.is_this_machine else []
    if any(os.path.exists(mark) for mark in marks):
        return "container"
    text = _dmi_text(host)
    if name := _first_match(_HYPERVISORS, text):
        return name
    cpuinfo = read_text(host.proc / "cpuinfo") or ""
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M):
        return "xen" if (host.proc / "xen").exists() else "other"
    return "none" if text and re.search(r"^flags\s*:", cpuinfo, re.M) else None


def _first_match(patterns: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((name for name, pattern in patterns if re.search(pattern, text)), None)


def _dmi_text(host: Host) -> str:
    folder = host.sys / "class" / "dmi" / "id"
    return "\n".join(read_text(folder / name) or "" for name in _DMI).strip().lower()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


#: Where below /run the teardown watcher leaves its note for the recorder.
NOTICE_FILE = Path("vmsonar/notice.json")
_MOST = 1 << 16


class NoticeNote(msgspec.Struct, kw_only=True):
    """When a notice was seen, and what it said."""

    time: datetime
    detail: str


class NoticeWatch:
    """Detects a new note; costs one stat(2) per tick."""

    def __init__(self, run: Path) -> None:
        self._path = run / NOTICE_FILE
        self._seen = stamp_of(self._path)

    def events(self) -> list[EventRow]:
        """The event of a note that was not there before."""
        stamp = stamp_of(self._path)
        if stamp is None or stamp == self._seen:
            return []
        self._seen = stamp
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                note = msgspec.json.decode(os.read(descriptor, _MOST), type=NoticeNote)
            finally:
                os.close(descriptor)
        except (OSError, msgspec.MsgspecError):
            return []
        return [EventRow(event_type="teardown_notice", happened=note.time, detail=note.detail)]
