"""The cloud and instance type without a network: DMI and cloud-init's instance-data.json."""

import os
import re
from typing import Any, NamedTuple

import msgspec
from vmsonar_archive.system.errors import NOT_JSON

from vmsonar.host.files import read_text
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

    provider: str | None = None
    instance_type: str | None = None
    region: str | None = None


def cloud(host: Host) -> Cloud:
    """From cloud-init's data where there is any, else from the firmware."""
    data = _instance_data(host)
    v1 = _mapping(data.get("v1"))
    meta = _mapping(_mapping(data.get("ds")).get("meta_data"))
    provider = _word(v1.get("cloud_name")) or _provider(host)
    flavour = _word(v1.get("instance_type")) or _word(meta.get("instance_type"))
    return Cloud(
        provider=None if provider in ("unknown", "none", "nocloud") else provider,
        instance_type=flavour or _flavour_by_dmi(host, provider),
        region=_word(v1.get("region")) or _word(v1.get("availability_zone")),
    )


def virtualization(host: Host) -> str | None:
    """What kind of machine this is; `none` is a machine of metal, None is not known."""
    if _in_container(host):
        return "container"
    text = _dmi_text(host)
    for name, pattern in _HYPERVISORS:
        if re.search(pattern, text):
            return name
    cpuinfo = read_text(host.proc / "cpuinfo") or ""
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M):
        return "xen" if (host.proc / "xen").exists() else "other"
    return "none" if text and re.search(r"^flags\s*:", cpuinfo, re.M) else None


def _in_container(host: Host) -> bool:
    # systemd.io/CONTAINER_INTERFACE, and what podman and docker leave behind
    marks = [str(host.run / "systemd" / "container"), str(host.run / ".containerenv")]
    return any(os.path.exists(mark) for mark in (*marks, *(["/.dockerenv"] if host.is_this_machine else [])))


def _provider(host: Host) -> str | None:
    text = _dmi_text(host)
    return next((name for name, pattern in _PROVIDERS if re.search(pattern, text)), None)


def _flavour_by_dmi(host: Host, provider: str | None) -> str | None:
    """Only AWS writes the flavour into the firmware, as the name of the product."""
    product = read_text(host.sys / "class" / "dmi" / "id" / "product_name")
    return (
        product
        if provider == "aws" and product and re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", product)
        else None
    )


def _dmi_text(host: Host) -> str:
    folder = host.sys / "class" / "dmi" / "id"
    return "\n".join(read_text(folder / name) or "" for name in _DMI).strip().lower()


def _instance_data(host: Host) -> dict[str, Any]:
    text = read_text(host.run / "cloud-init" / "instance-data.json")
    try:
        return _mapping(msgspec.json.decode(text)) if text else {}
    except NOT_JSON:
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
