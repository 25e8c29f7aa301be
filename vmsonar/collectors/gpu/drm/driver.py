"""The kernel's drivers for AMD and Intel over time: sysfs for devices, KFD and DRM clients for processes."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from vmsonar_archive.records import Card, EventRow, GpuProcessRow, GpuRow

from vmsonar.collectors.base import ProcessFacts
from vmsonar.collectors.gpu.collector import Reading
from vmsonar.collectors.gpu.drm.clients import (
    ClientMeters,
    ClientUse,
    DrmDescriptors,
    KfdNode,
    KfdUse,
    once_each,
    read_clients,
    read_nodes,
    read_uses,
)
from vmsonar.collectors.gpu.drm.devices import (
    DrmDevice,
    amd_card,
    find_devices,
    intel_card,
    read_amd,
    read_intel,
)
from vmsonar.host.roots import Host


class DrmDrivers:
    """Reads the cards there are; one that goes away stays, as a row that says so."""

    def __init__(self, host: Host, vendors: Collection[str], processes: bool) -> None:
        self._host = host
        self._vendors = vendors
        self._processes = processes
        self._names: list[str] = []
        self._present: list[DrmDevice] = []
        self._gone: dict[str, DrmDevice] = {}
        self._untold: list[EventRow] = []
        self._nodes: list[KfdNode] = []
        self.descriptors = DrmDescriptors(host.proc)
        self._meters = ClientMeters()

    def look(self, names: list[str]) -> bool:
        """Whether there is, or was, any card of the wanted makers; looks again only when the names change."""
        if names != self._names:
            self._names = names
            self._change(find_devices(self._host.sys, names, self._vendors))
        return bool(self._present or self._gone)

    def vendors(self) -> set[str]:
        """The makers of the cards there are."""
        return {device.vendor for device in self._present}

    def sample(self, boottime: int, processes: Mapping[int, ProcessFacts]) -> Reading:
        """All cards and the processes on them."""
        reading = Reading(events=self._untold)
        self._untold = []
        clients = self._clients(boottime, processes) if self._processes else []
        awake = {device.bus_address: self._read(device, boottime) for device in self._present}
        _add_shares(awake, clients if self.descriptors.complete else [])
        reading.rows = [*awake.values(), *(device.row("gpu_not_found") for device in self._gone.values())]
        reading.rows.sort(key=lambda row: row.gpu_index or 0)
        if self._processes:
            reading.uses = self._uses(clients)
        if not self.descriptors.complete:
            reading.troubles.append(("permission", "GPU time of other users' processes"))
        return reading

    def cards(self) -> list[Card]:
        """The cards as hardware."""
        sys = self._host.sys
        architectures = {node.bus_address: node.architecture for node in read_nodes(sys)}
        return [
            amd_card(device, sys, architectures.get(device.bus_address))
            if device.vendor == "amd"
            else intel_card(device, sys)
            for device in self._present
        ]

    def _change(self, found: list[DrmDevice]) -> None:
        """Takes over a new set of cards and notes which were lost or found again."""
        now = {device.uuid: device for device in found}
        for device in self._present:
            if device.uuid in now:
                now[device.uuid].integrator = device.integrator
            else:
                self._gone[device.uuid] = device
                self._untold.append(
                    EventRow(event_type="gpu_lost", gpu_uuid=device.uuid, detail="gpu_not_found")
                )
        for uuid in [uuid for uuid in self._gone if uuid in now]:
            del self._gone[uuid]
            self._untold.append(EventRow(event_type="gpu_found", gpu_uuid=uuid))
        self._present = found
        self._nodes = read_nodes(self._host.sys)

    def _read(self, device: DrmDevice, boottime: int) -> GpuRow:
        if device.sleeps():
            return device.row("suspended")
        return read_amd(device, boottime) if device.vendor == "amd" else read_intel(device)

    def _clients(self, boottime: int, processes: Mapping[int, ProcessFacts]) -> list[ClientUse]:
        starts = _starts(self._host.proc, processes)
        descriptors = self.descriptors.find(starts.items(), boottime)
        clients = once_each(read_clients(self._host.proc, descriptors), starts)
        return self._meters.update(clients, boottime)

    def _uses(self, clients: list[ClientUse]) -> list[GpuProcessRow]:
        uuids = {device.bus_address: device.uuid for device in self._present}
        uses: dict[tuple[str, int], GpuProcessRow] = {}

        def row(bus_address: str, pid: int) -> GpuProcessRow:
            return uses.setdefault((bus_address, pid), GpuProcessRow(gpu_uuid=uuids[bus_address], pid=pid))

        for client in clients:
            if client.bus_address in uuids:
                _add_client(row(client.bus_address, client.pid), client)
        for use in read_uses(self._host.sys, self._nodes) if self._nodes else []:
            if use.node.bus_address in uuids:
                _add_kfd(row(use.node.bus_address, use.pid), use)
        return [uses[key] for key in sorted(uses)]


def _starts(proc: Path, processes: Mapping[int, ProcessFacts]) -> dict[int, int | None]:
    """All processes with their starts, as far as those are known."""
    if processes:
        return {pid: facts.start_ticks for pid, facts in processes.items()}
    try:
        return {int(name): None for name in os.listdir(proc) if name.isdecimal()}
    except OSError:
        return {}


def _add_client(row: GpuProcessRow, client: ClientUse) -> None:
    row.usage = "+".join(sorted(client.usages)) or None
    row.memory_used, row.engine_time = client.memory, client.engine_time
    if client.shares:
        row.gpu_util, row.gpu_util_source = _percent(max(client.shares.values())), client.share_source


def _add_kfd(row: GpuProcessRow, kfd: KfdUse) -> None:
    """KFD knows the memory of compute, which is not in fdinfo, and which compute units are occupied."""
    row.usage = "compute+graphics" if "graphics" in (row.usage or "") else "compute"
    row.memory_used = max(row.memory_used or 0, kfd.memory)
    if kfd.occupied is not None and kfd.node.compute_units:
        row.gpu_util, row.gpu_util_source = _percent(kfd.occupied / kfd.node.compute_units), "cu_occupancy"


def _add_shares(rows: dict[str, GpuRow], clients: list[ClientUse]) -> None:
    """The utilisation of a GPU that does not tell it, from all its clients: that of the busiest engine."""
    engines: dict[str, dict[str, float]] = {}
    for client in clients:
        shares = engines.setdefault(client.bus_address, {})
        for engine, share in client.shares.items():
            shares[engine] = shares.get(engine, 0.0) + share
    for bus_address, shares in engines.items():
        row = rows.get(bus_address)
        if row is not None and row.gpu_util is None and row.error is None and shares:
            row.gpu_util, row.gpu_util_source = _percent(max(shares.values())), "drm_clients"


def _percent(share: float) -> float:
    return round(min(share, 1.0) * 100, 1)
