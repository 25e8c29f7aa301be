"""GPUs: our own CPU time per sample with eight GPUs and 64 processes, on the stub of NVML."""

import ctypes
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from vmsonar_archive.records.ids import SeriesIds

from bench import Figure
from tests.collectors.gpu.scenarios import DRIVER, gpu
from tests.nvml_stub.build import build
from vmsonar.collectors.base import ProcessFacts, Tick
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector
from vmsonar.host.roots import Host

GPUS, PROCESSES, SAMPLES = 8, 64, 200
START = datetime(2026, 11, 16, tzinfo=UTC)


def run() -> list[Figure]:
    """The figures of this area."""
    with TemporaryDirectory() as folder:
        collector = _collector(Path(folder))
        times = [_sample(collector, number) for number in range(SAMPLES)]
        collector.close()
    # the first samples open the library
    typical = statistics.median(times[20:])
    return [Figure("8 GPUs, 64 GPU processes: CPU per sample", typical, "ms", bound=3.0, note="on the stub")]


def _collector(folder: Path) -> NvidiaCollector:
    library = build(folder / "lib")
    (folder / "scenario").write_text(_scenario())
    ctypes.CDLL(str(library)).stub_scenario(str(folder / "scenario").encode())
    version = folder / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("550.54.15")
    host = Host(proc=folder / "proc", sys=folder / "sys")
    return NvidiaCollector(host, SeriesIds(UUID(int=0)), library=library)


def _scenario() -> str:
    """Each GPU with its share of the processes, all of them busy in every sample."""
    parts = [DRIVER]
    for index in range(GPUS):
        pids = range(1000 + index, 1000 + PROCESSES, GPUS)
        busy = [f"sample {pid} {2**60 + pid} 50 10" for pid in pids]
        parts.append(gpu(index, *(f"compute {pid} 1073741824" for pid in pids), *busy))
    return "".join(parts)


def _sample(collector: NvidiaCollector, number: int) -> float:
    """Milliseconds of CPU of the whole process, its threads included, for one sample."""
    facts = {pid: ProcessFacts(start_ticks=pid, pgid=pid) for pid in range(1000, 1000 + PROCESSES)}
    tick = Tick(
        time=START + timedelta(seconds=10 * number),
        boottime=number * 10_000_000_000,
        boot="b",
        fresh=number == 0,
        processes=facts,
    )
    begin = time.process_time_ns()
    rows = collector.collect(tick)
    used = (time.process_time_ns() - begin) / 1e6
    assert (len(rows.by_kind["gpu"]), len(rows.by_kind["gpu_process"])) == (GPUS, PROCESSES)
    return used
