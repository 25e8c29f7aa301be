"""The machine as Sonar's sysinfo attributes."""

from typing import Any

from vmsonar_archive.records import Card, SysInfo

_MANUFACTURERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


def sysinfo_attributes(info: SysInfo) -> dict[str, Any]:
    """All but time, cluster and node. Readers refuse 0 and empty text: what is unknown is the least there is."""
    threads = info.threads_per_core or 1
    sockets = info.sockets or 1
    cores = info.cores_per_socket or max(1, (info.cpus or 1) // (sockets * threads))
    attributes: dict[str, Any] = {
        "os_name": info.kernel_name or "Linux",
        "os_release": info.kernel_release or "unknown",
        "architecture": info.architecture or "unknown",
        "numa_nodes": info.numa_nodes or 1,
        "sockets": sockets,
        "cores_per_socket": cores,
        "threads_per_core": threads,
        "cpu_model": info.cpu_model or "unknown",
        "memory": max(1, (info.memory_total or 0) // 1024),
    }
    if info.numa_distances:
        attributes["distances"] = info.numa_distances
    if info.cards:
        attributes["cards"] = [_card(card) for card in info.cards]
    return attributes


def _card(card: Card) -> dict[str, Any]:
    values = {
        "address": card.bus_address,
        "manufacturer": _MANUFACTURERS.get(card.vendor or "", card.vendor),
        "model": card.model,
        "architecture": card.architecture,
        "driver": card.driver,
        "firmware": card.firmware,
        "memory": None if card.memory is None else card.memory // 1024,
        "power_limit": _whole(card.power_limit),
        "max_power_limit": _whole(card.power_limit_max),
        "min_power_limit": _whole(card.power_limit_min),
        "max_ce_clock": card.core_clock_max,
        "max_memory_clock": card.memory_clock_max,
    }
    told = {name: value for name, value in values.items() if value is not None}
    return {"index": card.gpu_index or 0, "uuid": card.gpu_uuid, **told}


def _whole(value: float | None) -> int | None:
    return None if value is None else max(0, round(value))
