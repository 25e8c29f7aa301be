"""Which process a process id of the GPU driver stands for (proc_pid_stat(5))."""

from pathlib import Path

from vmsonar.collectors.base import Tick

_PGRP, _START = 2, 19


def identify(tick: Tick, proc: Path, pid: int) -> tuple[int | None, int | None]:
    """Start ticks and process group, or nothing for a process that is gone."""
    facts = tick.processes.get(pid)
    if facts is not None:
        return facts.start_ticks, facts.pgid
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None, None
    return parse_stat(stat)


def parse_stat(stat: bytes) -> tuple[int | None, int | None]:
    """Start ticks and process group; the name in parentheses may hold anything."""
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) <= _START:
        return None, None
    return int(fields[_START]), int(fields[_PGRP])
