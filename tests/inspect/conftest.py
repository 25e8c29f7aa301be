"""One archive with known rollups, shared by every view's test."""

from pathlib import Path

import pytest
from vmsonar_archive.records import GapRow

from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id, gpu_id


def known_machine() -> Machine:
    """An hour at ten seconds, with 300 s missing, two users, a container, a GPU and a RAPL meter."""
    gpu = gpu_id(0)
    box = Box(box_id(1), "trainer", image="pytorch:2.9", limit=16 * GIB, quota=4.0, throttled=0.25)
    loads = [
        Load(100, "python3 train.py", begin=0, cores=2.0, threads=4, memory=8 * GIB, container=box.container_id,
             gpu={gpu: 50.0}, gpu_memory=10 * GIB),
        Load(200, "./simulate --steps 10", user="bert", begin=600, end=1800, cores=lambda s: 4.0 if s <= 600 else 1.0,
             memory=lambda s: (1 + s / 1200) * GIB, read=10 * MIB, write=5 * MIB),
        Load(300, "bash", user="bert", cores=0.0, memory=4 * MIB),
    ]  # fmt: skip
    gap = GapRow(collector="gpu", reason="timeout", detail="NVML did not answer in 2 s")
    return Machine(
        loads=loads, boxes=[box], gpus=(gpu,), silent=((2400, 2700),), gaps=[(1000, gap)],
        received=2 * MIB, sent=1 * MIB, package_watts=80.0, gpu_watts=100.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known_machine().record(tmp_path_factory.mktemp("known") / "archive", 3600)
