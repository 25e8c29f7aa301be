"""GPU processes that are real ones: joined to their job, their container and their user."""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.collectors.gpu.conftest import IDS, Machine, Stub, forget_library, plain
from tests.collectors.gpu.scenarios import DRIVER, gpu, gpu_row, uuid
from tests.parts import requires
from tests.real.docker import DockerEngine
from vmsonar.collectors.base import Rows, Setup, Tick
from vmsonar.collectors.gpu.drm.clients import DrmDescriptors
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector
from vmsonar.collectors.process.collector import make as make_process
from vmsonar.config.schema import Config
from vmsonar.host.roots import Host


def sample(host: Host, stub: Stub) -> tuple[Rows, dict[str, list[dict[str, object]]]]:
    """The process collector and then ours, at one tick, as the daemon runs them."""
    tick = Tick(time=datetime.now(UTC), boottime=1, boot="b", fresh=True)
    process = make_process(Setup(Config(), host, ids=IDS))
    processes = process.collect(tick)
    collector = NvidiaCollector(host, IDS, library=stub.library, time_limit=5.0)
    rows = plain(collector.collect(tick))
    collector.close()
    process.close()
    return processes, rows


def here(machine: Machine) -> Host:
    """This machine's processes, and a sysfs that shows the driver as loaded."""
    machine.write(machine.host.sys, {"module/nvidia/initstate": "live"})
    return Host(sys=machine.host.sys)


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@requires("docker")
def test_a_process_in_a_container(machine: Machine, stub: Stub, docker_engine: DockerEngine) -> None:
    container = docker_engine.start("sleep", "300", options=("--network", "none"))
    try:
        pid = int(docker_engine.docker("inspect", "--format", "{{.State.Pid}}", container))
        stub.play(DRIVER + gpu(0, f"compute {pid} 1048576"))
        processes, rows = sample(here(machine), stub)
    finally:
        fields = stat(pid)
        docker_engine.remove(container)
    start_ticks, pgid = int(fields[19]), int(fields[2])
    assert rows == {
        "gpu": [gpu_row(0)],
        "gpu_process": [
            {
                "gpu_uuid": uuid(0),
                "pid": pid,
                "start_ticks": start_ticks,
                "pgid": pgid,
                "usage": "compute",
                "memory_used": 1048576,
            }
        ],
    }
    infos = [json.loads(row) for row in processes.by_kind["process_info"]]
    (info,) = [row for row in infos if (row["pid"], row["start_ticks"]) == (pid, start_ticks)]
    assert (info["container_id"], info["user_id"]) == (container, 0)


def test_a_process_that_vanishes(machine: Machine, stub: Stub) -> None:
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        stub.play(DRIVER + gpu(0, f"compute {child.pid} 1048576"))
        _, rows = sample(here(machine), stub)
        (row,) = rows["gpu_process"]
        assert (row["start_ticks"], row["pgid"]) == (int(stat(child.pid)[19]), child.pid)
    finally:
        child.kill()
        child.wait()
    forget_library()
    _, rows = sample(here(machine), stub)
    assert rows["gpu_process"] == [
        {"gpu_uuid": uuid(0), "pid": child.pid, "usage": "compute", "memory_used": 1048576}
    ]


@requires("root")
def test_processes_that_may_not_be_looked_into_are_noticed() -> None:
    """In a child that is nobody; process 1 is root's."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            descriptors = DrmDescriptors(Path("/proc"))
            code = 0 if descriptors.find([(1, None)], 0) == {} and not descriptors.complete else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
