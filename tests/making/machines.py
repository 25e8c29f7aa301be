"""Archives with known truths: simulated workloads on a simulated machine, written by the real writer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.records import EventRow, GapRow, Row

from tests.making.archives import open_writer

BOOT = "5b1c3f0e-8f7e-4f5c-9a51-0d5b2f1f9a10"
START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
TICKS = 100
GIB = 2**30
MIB = 2**20
Curve = float | Callable[[float], float]


def at(curve: Curve, second: float) -> float:
    """The value of a curve at a second after the load's start."""
    return curve(second) if callable(curve) else curve


@dataclass
class Load:
    """One job, started at `begin` and gone after `end` (seconds after the first sample)."""

    pgid: int
    command: str
    begin: float = -500.0
    end: float = 1e12
    user: str = "anna"
    cores: Curve = 0.0
    workers: tuple[float, ...] = (1.0,)
    threads: int = 1
    memory: Curve = 100 * MIB
    read: Curve = 0.0
    write: Curve = 0.0
    births: float = 0.0
    unseen: float = 0.0
    faults: float = 0.0
    gpu: dict[str, Curve] = field(default_factory=dict)
    gpu_memory: float = 0.0
    container: str | None = None
    job_id: str | None = None
    step: str | None = None
    task: int | None = None
    unattributed: bool = False
    #: What samples find its processes in: R runs or waits for a core.
    state: str = "S"
    totals: dict[str, float] = field(default_factory=dict)
    #: Its user's own limits.
    ulimits: dict[str, int] = field(default_factory=dict)
    #: What its own control group counts at a second.
    group: Callable[[float], dict[str, Any]] = lambda _: {}

    def alive(self, second: float) -> bool:
        return self.begin < second <= self.end

    @property
    def start_ticks(self) -> int:
        return int((1000 + self.begin) * TICKS)


@dataclass
class Box:
    """One container; its use is that of the loads in it."""

    container_id: str
    name: str
    image: str = "python:3.12"
    user: str = "anna"
    limit: int | None = None
    quota: float | None = None
    throttled: float = 0.0
    oom_at: float | None = None
    processes_limit: int | None = None
    #: When a fork fails at that limit.
    refused_at: float | None = None
    labels: dict[str, str] | None = None
    totals: dict[str, float] = field(default_factory=dict)


@dataclass
class Machine:
    """The simulated machine and what it records."""

    loads: list[Load] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    gpus: tuple[str, ...] = ()
    cpus: int = 8
    memory: int = 32 * GIB
    base_memory: int = 1 * GIB
    interval: int = 10
    hostname: str = "vm-one"
    machine_id: str = "0123456789abcdef0123456789abcdef"
    provider: str | None = "aws"
    instance_type: str | None = "c7i.2xlarge"
    os_name: str = "Debian GNU/Linux 13 (trixie)"
    pressure: dict[str, Curve] = field(default_factory=dict)
    swap: float = 0.0
    forks: Curve = 1.0
    received: Curve = 0.0
    sent: Curve = 0.0
    runnable: Curve = 1.0
    package_watts: Curve | None = None
    gpu_watts: Curve = 50.0
    steal: float = 0.0
    #: The CPUs of each core, and how busy each CPU was.
    core_siblings: list[list[int]] | None = None
    cpu_busy: dict[int, float] = field(default_factory=dict)
    instance_id: str | None = None
    #: The configuration that sysinfo shows.
    config: dict[str, msgspec.Raw] | None = None
    silent: tuple[tuple[float, float], ...] = ()
    gaps: list[tuple[float, GapRow]] = field(default_factory=list)
    events: list[tuple[float, EventRow]] = field(default_factory=list)
    #: Rows of kinds that are not simulated, and when the kernel killed for lack of memory outside of containers.
    more: list[tuple[float, str, Row]] = field(default_factory=list)
    kills: tuple[float, ...] = ()
    #: What jobs read and write does not go to the disk, but to a share.
    remote: bool = False
    #: What the machine has, and can have at most, by the names of a node's row.
    ceilings: dict[str, int] = field(default_factory=dict)
    start: datetime = START

    def record(self, root: Path, seconds: float) -> Path:
        """Writes the archive of that many seconds and returns its folder."""
        from tests.making.machine_recorder import Recorder

        node = NodeIdentity(machine_id=self.machine_id, hostname_short=self.hostname)
        writer = open_writer(root, node=node, now=lambda: self.start)
        try:
            Recorder(self, writer).run(seconds)
        finally:
            assert writer.close()
        return root


def box_id(number: int) -> str:
    """A container id: 64 hexadecimal digits."""
    return f"{number:064x}"


def gpu_id(number: int) -> str:
    return f"GPU-{UUID(int=number + 1)}"
