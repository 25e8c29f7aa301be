"""Containers: what a sample of fifty costs, companion included, beside the engine's own one-shot statistics."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import Figure
from tests.parts import DOCKER_SOCKET, docker_answers
from tests.real.docker import DOCKER, DockerEngine, import_image
from tests.real.meter import cpu_ns, family, pss
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.container.collector import ContainerCollector
from vmsonar.collectors.container.collector import make as make_containers
from vmsonar.collectors.process.collector import make as make_processes
from vmsonar.config.schema import Config
from vmsonar.host.clock import Clock

CONTAINERS = 50
SAMPLES = 40
PAUSE = 0.25
# Each wakes between any two samples, so that its counters move.
LOAD = ("busybox", "ping", "-q", "-i", "0.2", "127.0.0.1")


def run() -> list[Figure]:
    """The figures of this area; none where no engine runs."""
    if not docker_answers():
        print("bench: containers: no Docker engine answers: skipped", file=sys.stderr)
        return []
    import_image(DOCKER)
    with _containers() as ids:
        ours, companion = _collector_cost()
        engines = _one_shot_cost(ids)
        sampler_pss, companion_pss = _memory()
    per_container = (ours + companion) / CONTAINERS
    return [
        Figure("a container in a sample, companion included", per_container, "µs of CPU", 120),
        Figure("of that the companion", companion / CONTAINERS, "µs of CPU"),
        Figure("one-shot statistics of the engine, a container", engines / CONTAINERS, "µs of CPU"),
        Figure("so many times less than that", engines / (ours + companion), "", 10, at_least=True),
        Figure(f"PSS of the sampler with {CONTAINERS} containers", sampler_pss / 2**20, "MB", 18),
        Figure("PSS of the companion", companion_pss / 2**20, "MB", 30),
    ]


@contextmanager
def _containers() -> Iterator[list[str]]:
    engine = DockerEngine()
    try:
        yield [engine.start(*LOAD, options=("--network", "none")) for _ in range(CONTAINERS)]
    finally:
        engine.remove_all()


def _collector_cost() -> tuple[float, float]:
    """Microseconds of CPU per sample: the collector's, and the companion's in the same time."""
    clock = Clock()
    setup = Setup(Config())
    processes = make_processes(setup)
    containers = make_containers(setup)
    assert isinstance(containers, ContainerCollector)

    def tick(number: int) -> Tick:
        made = Tick(time=clock.now(), boottime=clock.boottime_ns(), boot="b", fresh=number == 0)
        processes.collect(made)
        return made

    while not containers.describe():  # until the companion has told what it knows
        containers.collect(tick(0))
        time.sleep(0.2)
    time.sleep(1)
    companion = containers.companion_pid
    assert companion is not None
    before, used = cpu_ns([companion]), 0
    for number in range(1, SAMPLES + 1):
        made = tick(number)
        used += _timed(lambda made=made: containers.collect(made))
        time.sleep(PAUSE)
    asked = cpu_ns([companion]) - before
    containers.close()
    processes.close()
    return used / SAMPLES / 1000, asked / SAMPLES / 1000


def _one_shot_cost(ids: list[str]) -> float:
    """Microseconds of CPU to ask the engine once for all: ours, the engine's, and that of its helpers."""
    pids = _engine_processes()
    before, began = cpu_ns(pids), time.process_time_ns()
    for container_id in ids:
        _ask(f"/containers/{container_id}/stats?stream=false&one-shot=true")
    return (cpu_ns(pids) - before + time.process_time_ns() - began) / 1000


def _ask(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(DOCKER_SOCKET)
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def _engine_processes() -> list[int]:
    daemon = int(Path("/var/run/docker.pid").read_text())
    found = subprocess.run(["pgrep", "-f", "containerd-shim"], capture_output=True, text=True, check=False)
    return sorted({*family(daemon), *map(int, found.stdout.split())})


def _memory() -> tuple[int, int]:
    """PSS of a daemon and of its companion after some samples."""
    with TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "vmsonar.daemon", f"--archive={folder}", "--interval=200ms"]
        daemon = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        time.sleep(8)
        companions = [pid for pid in family(daemon.pid) if b"vmsonar.companion" in _command(pid)]
        sizes = pss([daemon.pid]), pss(companions)
        daemon.terminate()
        daemon.wait()
    assert companions, "the daemon has started no companion"
    return sizes


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _timed(work: Callable[[], object]) -> int:
    began = time.process_time_ns()
    work()
    return time.process_time_ns() - began
