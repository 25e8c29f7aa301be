"""The names of the views, and the orders in which their rows can be listed."""

from collections.abc import Callable
from typing import Any

from vmsonar_inspect.facts.model import Use

VIEWS = ("summary", "jobs", "containers", "units", "gpus", "shares", "links", "users", "sessions", "programs",
         "timeline", "events", "advice", "gaps")  # fmt: skip

#: Kinds of events that can be chosen; facts/events.py says which types are of which.
EVENT_KINDS = ("exit", "oom", "container", "gpu", "machine", "recorder", "process")


def _most(field: str) -> Callable[[Any], float]:
    return lambda row: -(getattr(row, field, None) or 0.0)


def _peak_memory(row: Any) -> float:
    use = getattr(row, "memory_bytes", None)
    return -((use.peak if isinstance(use, Use) else getattr(row, "memory_peak_bytes", None)) or 0.0)


def _start(row: Any) -> float:
    first = getattr(row, "started", None) or getattr(row, "first", None) or getattr(row, "time", None)
    return first.timestamp() if first is not None else 0.0


_KEYS: dict[str, Callable[[Any], Any]] = {
    "cpu": _most("cpu_seconds"),
    "memory": _peak_memory,
    "gpu": _most("gpu_seconds"),
    "runtime": _most("runtime_seconds"),
    "start": _start,
    "read": _most("read_bytes"),
    "write": _most("write_bytes"),
    "energy": lambda row: -(row.energy.joules or 0.0) if hasattr(row, "energy") else 0.0,
    "session": lambda row: (getattr(row, "session_id", None) or 0, _start(row)),
    "name": lambda row: str(
        getattr(row, "name", None) or getattr(row, "job", None) or getattr(row, "gpu", "")
    ),
}
SORTS = tuple(_KEYS)


def arranged(rows: list[Any], sort: str | None, top: int | None) -> list[Any]:
    """Sorts the rows and keeps the first `top`."""
    ordered = rows if sort is None else sorted(rows, key=_KEYS[sort])
    return ordered if top is None else ordered[:top]
