"""What the tests of AMD and Intel share: a collector for a tree of files, and rows as they are expected."""

from typing import Any

from vmsonar_archive.records import Card

from tests.collectors.gpu.conftest import IDS, Machine, tick
from vmsonar.collectors.base import ProcessFacts
from vmsonar.collectors.gpu.drm.collector import DrmCollector


def collector_of(machine: Machine, **options: Any) -> DrmCollector:
    return DrmCollector(machine.host, IDS, **options)


def cards_of(machine: Machine) -> list[Card]:
    """The cards after a first reading."""
    collector = collector_of(machine)
    collector.collect(tick())
    return collector.describe()["cards"] or []


def facts(*processes: tuple[int, int, int]) -> dict[int, ProcessFacts]:
    """Processes given as id, start and group."""
    return {pid: ProcessFacts(start_ticks=start, pgid=pgid) for pid, start, pgid in processes}


def named(uuid: str, **more: Any) -> dict[str, Any]:
    return {"gpu_uuid": uuid, "series_id": IDS.gpu(uuid), **more}
