"""The machine as a whole: /proc/stat, loadavg, meminfo and vmstat (proc(5))."""

import os
from pathlib import Path

from vmsonar_archive.records import Capability, EventRow, NodeRow
from vmsonar_archive.records.node import CpuTimes

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, numbers, readable
from vmsonar.host.files import KeptFile, read_text

_STAT = {b"ctxt": "context_switches", b"processes": "forks", b"procs_blocked": "tasks_blocked"}
_MEMORY = {
    b"\nMemTotal:": "memory_total",
    b"\nMemFree:": "memory_free",
    b"\nMemAvailable:": "memory_available",
    b"\nBuffers:": "memory_buffers",
    b"\nCached:": "memory_cached",
    b"\nAnonPages:": "memory_anonymous",
    b"\nShmem:": "memory_shared",
    b"\nDirty:": "memory_dirty",
    b"\nWriteback:": "memory_writeback",
    b"\nSReclaimable:": "memory_slab_reclaimable",
    b"\nSUnreclaim:": "memory_slab_unreclaimable",
    b"\nCommitted_AS:": "memory_committed",
    b"\nSwapTotal:": "swap_total",
    b"\nSwapFree:": "swap_free",
}
_FAULTS = {
    b"\npswpin ": "pages_swapped_in",
    b"\npswpout ": "pages_swapped_out",
    b"\npgfault ": "page_faults",
    b"\npgmajfault ": "major_page_faults",
    b"\noom_kill ": "oom_kills",
}


# Ceilings of the machine: the fields of a row, and the file below /proc/sys.
_USED = (("open_files", "fs/file-nr"), ("connections", "net/netfilter/nf_conntrack_count"))
_CEILINGS = (
    ("tasks_limit", "kernel/pid_max"),
    ("tasks_limit", "kernel/threads-max"),
    ("connections_limit", "net/netfilter/nf_conntrack_max"),
)
_RARELY_NS = 60_000_000_000
# systemd sets the number of open files to the largest there is.
_UNLIMITED = 1 << 62


def parse_stat(content: bytes) -> dict[str, int]:
    """Totals of /proc/stat, with one look at each part: the line intr alone may have thousands of columns."""
    first = content.find(b"\n")
    intr = content.find(b"\nintr ", first)
    # Older kernels have fewer columns.
    fields = dict(zip(CpuTimes.__struct_fields__, map(int, content[5:first].split()), strict=False))
    fields["cpus_online"] = content.count(b"\ncpu", 0, intr if intr > 0 else len(content))
    if intr > 0:
        fields["interrupts"] = int(content[intr + 6 : intr + 32].split(None, 1)[0])
    words = content[content.find(b"\nctxt ", intr) :].split(None, 12)
    for key, value in zip(words[::2], words[1::2], strict=False):
        if key in _STAT:
            fields[_STAT[key]] = int(value)
    return fields


def parse_loadavg(content: bytes) -> dict[str, float | int]:
    """The three averages and the tasks of /proc/loadavg."""
    one, five, fifteen, tasks, *_ = content.split()
    runnable, _, existing = tasks.partition(b"/")
    return {
        "load1": float(one),
        "load5": float(five),
        "load15": float(fifteen),
        "tasks_runnable": int(runnable),
        "tasks_existing": int(existing),
    }


def parse_meminfo(content: bytes) -> dict[str, int]:
    """Bytes of /proc/meminfo, whose kB are 1024 bytes."""
    return numbers(content, _MEMORY, 1024)


def parse_vmstat(content: bytes) -> dict[str, int]:
    """Faults, swapping and OOM kills of /proc/vmstat."""
    return numbers(content, _FAULTS)


class Ceilings:
    """What the machine can run out of, used against its limit; limits are read once a minute."""

    def __init__(self, proc: Path) -> None:
        self._used = [(name, KeptFile(proc / "sys" / path)) for name, path in _USED]
        self._files = [(name, proc / "sys" / path) for name, path in _CEILINGS]
        self._there: list[tuple[str, KeptFile]] = []
        self._limits: dict[str, int] = {}
        self._due = 0

    def fields(self, boottime: int) -> dict[str, int]:
        """Those that can be read; tracked connections are of our own network namespace."""
        if boottime >= self._due:
            self._due = boottime + _RARELY_NS
            self._limits = self._read_limits()
            # A module that is not loaded, or a file that a container hides, need not be tried at each sample.
            self._there = [(name, file) for name, file in self._used if os.access(file.path, os.R_OK)]
        fields = dict(self._limits)
        for name, file in self._there:
            try:
                first, *rest = map(int, file.read().split())
            except (OSError, ValueError):
                continue
            fields[name] = first
            if rest and rest[-1] < _UNLIMITED:
                fields[f"{name}_limit"] = rest[-1]
        return fields

    def _read_limits(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, path in self._files:
            text = read_text(path) or ""
            if text.isdecimal():
                found[name] = min(int(text), found.get(name, int(text)))
        return found

    def capabilities(self, collector: str) -> list[Capability]:
        (_, files), _ = self._used
        return [readable(collector, "open files against their limit", files.path)]

    def close(self) -> None:
        for _, file in self._used:
            file.close()


class NodeCollector(Collector):
    """One row per sample."""

    name = "node"
    kinds = ("node", "event")

    def __init__(self, setup: Setup) -> None:
        self._stat = setup.proc_stat
        self._loadavg = KeptFile(setup.host.proc / "loadavg")
        self._meminfo = KeptFile(setup.host.proc / "meminfo")
        self._vmstat = KeptFile(setup.host.proc / "vmstat")
        self._ceilings = Ceilings(setup.host.proc)
        self._series = setup.ids.node(setup.machine_id)
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._oom_kills: int | None = None

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        fields: dict[str, float | int] = dict(parse_stat(self._stat.read_at(tick)))
        fields |= parse_meminfo(self._meminfo.read())
        for file, parse in ((self._loadavg, parse_loadavg), (self._vmstat, parse_vmstat)):
            try:
                fields |= parse(file.read())
            except FileNotFoundError:
                continue  # a container's /proc may lack them; capabilities() tells
        fields |= self._ceilings.fields(tick.boottime)
        row = NodeRow(series_id=self._series, ticks_per_second=self._ticks_per_second, **fields)  # type: ignore[arg-type]
        rows.add("node", row)
        self._tell_kills(row.oom_kills, rows)
        return rows

    def _tell_kills(self, total: int | None, rows: Rows) -> None:
        """Whom the kernel killed is in its log, which takes a privilege to read; how many it counts for everyone."""
        if total is not None and self._oom_kills is not None and total > self._oom_kills:
            killed = total - self._oom_kills
            detail = "1 process" if killed == 1 else f"{killed} processes"
            rows.add("event", EventRow(event_type="oom_kill", detail=detail))
        self._oom_kills = total

    def capabilities(self) -> list[Capability]:
        return [
            readable(self.name, "CPU time, forks, context switches", self._stat.path),
            readable(self.name, "load and tasks", self._loadavg.path),
            readable(self.name, "memory", self._meminfo.path),
            readable(self.name, "faults, swapping, OOM kills", self._vmstat.path),
            *self._ceilings.capabilities(self.name),
        ]

    def close(self) -> None:
        for file in (self._stat, self._loadavg, self._meminfo, self._vmstat):
            file.close()
        self._ceilings.close()


make = NodeCollector
