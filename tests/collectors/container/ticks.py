"""Ticks as the process collector fills them, from a real or a fixture /proc."""

import time
from datetime import UTC, datetime
from pathlib import Path

from vmsonar.collectors.base import ProcessFacts, Tick
from vmsonar.host.cgroups import membership


def tick_of(proc: Path = Path("/proc"), fresh: bool = False, boottime: int | None = None) -> Tick:
    """A tick that knows every process below this root."""
    processes: dict[int, ProcessFacts] = {}
    containers: dict[str, list[int]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            found = membership((folder / "cgroup").read_bytes())
            start = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
        except OSError:
            continue
        pid = int(folder.name)
        processes[pid] = ProcessFacts(start_ticks=start, pgid=pid)
        if found.container_id:
            containers.setdefault(found.container_id, []).append(pid)
    return Tick(
        time=datetime.now(UTC),
        boottime=time.clock_gettime_ns(time.CLOCK_BOOTTIME) if boottime is None else boottime,
        boot="boot",
        fresh=fresh,
        processes=processes,
        containers=containers,
    )
