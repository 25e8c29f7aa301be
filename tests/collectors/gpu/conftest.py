"""A machine made of files, the NVML stub, and a collector over both."""

import ctypes
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from vmsonar_archive.records import KINDS
from vmsonar_archive.records.ids import SeriesIds

from tests.nvml_stub.build import build
from tests.parts import need
from vmsonar.collectors.base import Collector, ProcessFacts, Rows, Tick
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector
from vmsonar.daemon.log import Log
from vmsonar.daemon.sampler import Sampler
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host

IDS = SeriesIds(UUID(int=0))
START = datetime(2026, 11, 16, 14, 0, tzinfo=UTC)
START_US = round(START.timestamp() * 1e6)


def tick(seconds: float = 0, processes: dict[int, ProcessFacts] | None = None) -> Tick:
    """A tick so many seconds after the first."""
    return Tick(
        time=START + timedelta(seconds=seconds),
        boottime=int((1000 + seconds) * 1e9),
        boot="b",
        fresh=seconds == 0,
        processes=processes or {},
    )


def plain(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """The rows as whoever reads the archive sees them; each is valid for its kind."""
    for kind, encoded in rows.by_kind.items():
        for row in encoded:
            msgspec.json.decode(row, type=KINDS[kind])
    return {kind: [json.loads(row) for row in encoded] for kind, encoded in rows.by_kind.items()}


def guarded(collector: Collector) -> Sampler:
    """The collector as the daemon runs it, under its guard."""
    return Sampler([collector], 1000.0, Clock(), Log("error"))


class Machine:
    """Roots of a machine below a folder."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(proc=folder / "proc", sys=folder / "sys", etc=folder / "etc", run=folder / "run")
        for root in (self.host.proc, self.host.sys, self.host.run):
            root.mkdir(parents=True)

    def write(self, root: Path, files: dict[str, str | int]) -> None:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")

    def process(self, pid: int, start_ticks: int, pgid: int) -> None:
        """A process, with a name made to confuse."""
        rest = " ".join(["0"] * 15)
        self.write(
            self.host.proc, {f"{pid}/stat": f"{pid} (a) S b) S 1 {pgid} {pgid} {rest} {start_ticks} 0 0 0"}
        )

    def load_nvidia(self, version: str = "550.54.15") -> None:
        self.write(self.host.proc, {"driver/nvidia/version": f"NVRM version: {version}"})

    def unload_nvidia(self) -> None:
        (self.host.proc / "driver/nvidia/version").unlink()


class Stub:
    """The library and its scenario."""

    def __init__(self, library: Path, scenario: Path) -> None:
        self.library = library
        self._scenario = scenario
        self._changes = 0

    def play(self, text: str) -> None:
        """Puts the scenario in place of the one before, in one step."""
        self._changes += 1
        fresh = self._scenario.with_suffix(".new")
        fresh.write_text(text)
        os.utime(fresh, ns=(self._changes, self._changes))
        fresh.replace(self._scenario)

    def begin(self) -> None:
        ctypes.CDLL(str(self.library)).stub_scenario(str(self._scenario).encode())

    def calls(self) -> tuple[int, int, int]:
        """How often it was initialised, shut down, and asked for PCIe traffic."""
        library = ctypes.CDLL(str(self.library))
        library.stub_calls.restype = ctypes.c_long
        return library.stub_calls(0), library.stub_calls(1), library.stub_calls(2)


def forget_library() -> None:
    """Makes pynvml load its library anew."""
    import pynvml

    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def stub(library: Path, tmp_path: Path) -> Iterator[Stub]:
    stub = Stub(library, tmp_path / "scenario")
    stub.play("")
    stub.begin()
    forget_library()
    yield stub
    # whatever still hangs is let go
    stub.play("")
    forget_library()


@pytest.fixture
def collector(machine: Machine, stub: Stub) -> Iterator[NvidiaCollector]:
    machine.load_nvidia()
    collector = NvidiaCollector(machine.host, IDS, library=stub.library, time_limit=5.0)
    yield collector
    collector.close()
