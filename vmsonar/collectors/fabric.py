"""Ports of InfiniBand, RoCE and EFA devices (the kernel's Documentation/ABI/stable/sysfs-class-infiniband)."""

import re
from pathlib import Path

from vmsonar_archive.records import Capability, FabricRow

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, capability
from vmsonar.host.files import KeptFile, counter, listed, read_text

#: Devices come with the driver: a look for new ones and for the state of links once a minute.
_RARELY_NS = 60_000_000_000
_MOST_PORTS = 32
#: The file of each field, and what counts the same on EFA.
_FILES = {
    "received_bytes": ("counters/port_rcv_data", "hw_counters/rx_bytes"),
    "sent_bytes": ("counters/port_xmit_data", "hw_counters/tx_bytes"),
    "received_packets": ("counters/port_rcv_packets", "hw_counters/rx_pkts"),
    "sent_packets": ("counters/port_xmit_packets", "hw_counters/tx_pkts"),
    "received_errors": ("counters/port_rcv_errors",),
    "received_drops": ("hw_counters/out_of_buffer", "hw_counters/rx_drops"),
    "sent_drops": ("counters/port_xmit_discards",),
    "sent_waits": ("counters/port_xmit_wait",),
    "symbol_errors": ("counters/symbol_error",),
    "link_recoveries": ("counters/link_error_recovery",),
    "link_failures": ("counters/link_downed",),
    "sequence_errors": ("hw_counters/packet_seq_err",),
    "acknowledge_timeouts": ("hw_counters/local_ack_timeout_err",),
    "congestions": ("hw_counters/rp_cnp_handled",),
    "retransmitted_bytes": ("hw_counters/retrans_bytes",),
}


class Port:
    """One port, and its files that are there."""

    def __init__(self, folder: Path) -> None:
        device = folder.parent.parent.name
        self.row = FabricRow(fabric_device=device, fabric_port=int(folder.name))
        self._folder = folder
        self._files: dict[str, tuple[KeptFile, int]] = {}
        for name, files in _FILES.items():
            if path := next((folder / file for file in files if (folder / file).exists()), None):
                # Data is counted in units of four bytes.
                self._files[name] = KeptFile(path), 4 if path.name.endswith("_data") else 1
        self.look()

    def look(self) -> None:
        """What changes rarely: the link."""
        row = self.row
        row.link_layer = read_text(self._folder / "link_layer") or None
        # `4: ACTIVE` and `100 Gb/sec (4X EDR)`
        row.link_state = (read_text(self._folder / "state") or "").rpartition(":")[2].strip().lower() or None
        row.link_speed = _megabits(read_text(self._folder / "rate"))

    def read(self) -> FabricRow:
        """The counters now; one that cannot be read is unknown."""
        for name, (file, unit) in self._files.items():
            try:
                setattr(self.row, name, counter(file.read()) * unit)
            except (OSError, ValueError):
                setattr(self.row, name, None)
        return self.row

    def close(self) -> None:
        for file, _ in self._files.values():
            file.close()


class FabricCollector(Collector):
    """One row per port. A device may take its time to answer, or for ever."""

    name = "fabric"
    kinds = ("fabric",)
    time_limit = 1.0

    def __init__(self, setup: Setup) -> None:
        self._root = setup.host.sys / "class/infiniband"
        self._ports: dict[Path, Port] = {}
        self._rarely_due = 0

    def may_block(self) -> bool:
        return bool(self._ports) or self._root.exists()

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        if tick.boottime >= self._rarely_due:
            self._rarely_due = tick.boottime + _RARELY_NS
            self._look()
        for port in self._ports.values():
            rows.add("fabric", port.read())
        return rows

    def _look(self) -> None:
        folders = [
            folder
            for device in listed(self._root)
            for folder in listed(device / "ports")
            if folder.name.isdecimal()
        ][:_MOST_PORTS]
        for gone in self._ports.keys() - set(folders):
            self._ports.pop(gone).close()
        for folder in folders:
            if folder in self._ports:
                self._ports[folder].look()
            else:
                self._ports[folder] = Port(folder)

    def capabilities(self) -> list[Capability]:
        reason = None if self._root.is_dir() else f"{self._root}: no such device"
        return [capability(self.name, "InfiniBand, RoCE and EFA ports", reason)]

    def close(self) -> None:
        for port in self._ports.values():
            port.close()
        self._ports = {}


def _megabits(text: str | None) -> int | None:
    found = re.match(r"(\d{1,6}(?:\.\d+)?) Gb/sec", text or "")
    return round(float(found[1]) * 1000) if found else None
