"""The names of the views, and the orders in which their rows can be listed."""

from typing import Any

from vmsonar_inspect.facts.model import Use

VIEWS = ("summary", "jobs", "containers", "gpus", "users", "programs", "timeline", "advice", "gaps")


def _peak_memory(row: Any) -> float | None:
    use = getattr(row, "memory_bytes", None)
    return use.peak if isinstance(use, Use) else getattr(row, "memory_peak_bytes", None)


def _start(row: Any) -> float:
    first = getattr(row, "started", None) or getattr(row, "first", None)
    return first.timestamp() if first is not None else 0.0


_KEYS: dict[str, Any] = {
    "cpu": lambda row: -(getattr(row, "cpu_seconds", None) or 0.0),
    "memory": lambda row: -(_peak_memory(row) or 0.0),
    "gpu": lambda row: -(getattr(row, "gpu_seconds", None) or 0.0),
    "runtime": lambda row: -(getattr(row, "runtime_seconds", None) or 0.0),
    "start": _start,
    "read": lambda row: -(getattr(row, "read_bytes", None) or 0.0),
    "write": lambda row: -(getattr(row, "write_bytes", None) or 0.0),
    "energy": lambda row: -(row.energy.joules or 0.0) if hasattr(row, "energy") else 0.0,
    "name": lambda row: str(
        getattr(row, "name", None) or getattr(row, "job", None) or getattr(row, "gpu", "")
    ),
}


SORTS = tuple(_KEYS)


def arranged(rows: list[Any], sort: str | None, top: int | None) -> list[Any]:
    """Sorts the rows and keeps the first `top`."""
    ordered = rows if sort is None else sorted(rows, key=_KEYS[sort])
    return ordered if top is None else ordered[:top]
