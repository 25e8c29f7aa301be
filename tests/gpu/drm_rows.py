"""What the tests of AMD and Intel share: a collector for a tree of files, and rows as they are expected."""

from typing import Any

from tests.gpu.conftest import IDS, Machine
from vmsonar.collectors.base import ProcessFacts
from vmsonar.collectors.gpu import GpuCollector


def collector_of(machine: Machine, **options: Any) -> GpuCollector:
    return GpuCollector(machine.host, IDS, **options)


def facts(*processes: tuple[int, int, int]) -> dict[int, ProcessFacts]:
    """Processes given as id, start and group."""
    return {
        pid: ProcessFacts(pid=pid, start_ticks=start, ppid=1, pgid=pgid) for pid, start, pgid in processes
    }


def named(uuid: str, **more: Any) -> dict[str, Any]:
    return {"gpu_uuid": uuid, "series_id": IDS.gpu(uuid), **more}
