"""What the tests of metrics share: samples by hand, a machine that is recorded now, and the commands that show it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from vmsonar_archive.dialect.metrics import Metric, table
from vmsonar_archive.dialect.subjects import Observer
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import (
    KINDS,
    Card,
    ContainerInfoRow,
    EventRow,
    GapRow,
    JobInfoRow,
    Sample,
    SysInfo,
)

from tests.making.worlds import Job, Machine

#: How many of what a crowded machine has.
JOBS, CONTAINERS, GPUS, PROCESSES = 100, 50, 8, 500
BOOTED = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def by_convention() -> dict[str, list[Metric]]:
    """The metrics under each name for OpenTelemetry."""
    named: dict[str, list[Metric]] = {}
    for metric in table().metrics:
        named.setdefault(metric.convention, []).append(metric)
    return named


def sample(seconds: float, boot: str = "boot-1", run: str = "r", **rows: object) -> Sample:
    """A sample so many seconds after the boot."""
    return Sample(
        time=BOOTED + timedelta(seconds=seconds), seq=int(seconds), run=run, boot=boot,
        boottime=int(seconds * 1e9), **rows,
    )  # fmt: skip


def live(root: Path, ago: float = 0.0, samples: int = 5) -> Machine:
    """A machine whose last sample was taken so many seconds ago; its recorder still runs."""
    machine = Machine(
        root, booted=datetime.now(UTC) - timedelta(seconds=1000 + 10 * samples + ago), uptime=1000.0
    )
    machine.jobs = [Job(20, start=900.0, end=1e9, cores=2.0, memory=2**30)]
    machine.start_daemon()
    machine.run(samples)
    return machine


def vmsonar(*words: object) -> list[str]:
    """The line of a command."""
    return [sys.executable, "-m", "vmsonar", *map(str, words)]


def command(root: Path, *words: object) -> list[str]:
    return vmsonar("metrics", "--archive", root, *words)


@contextmanager
def running(*line: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(list(map(str, line)), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(10)


def exported(archive: Path, folder: Path, *words: str) -> Path:
    line = vmsonar("export", archive, "--to", "openmetrics", "-o", folder, *words)
    subprocess.run(line, check=True, capture_output=True)
    return folder


class Everything(Machine):
    """A machine that has a number for every metric there is, counters that rise, and events."""

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        number = round(self.uptime)
        boxes = ContainerInfoRow(
            series_id="c", container_id="ab" * 32, name="web", image="nginx", user_name="eve", restart_count=1
        )
        named = JobInfoRow(
            series_id="j", pgid=20, start_ticks=5000, job_id="20", program="python", user_name="anna",
            open_files_limit=1024, processes_limit=9,
        )  # fmt: skip
        killed = EventRow(event_type="oom_kill", program='a"b', pid=number, detail=f"killed at {number}")
        rows: dict[str, list[Any]] = {
            "container_info": [boxes],
            "job_info": [named],
            "event": [killed],
            "gap": [GapRow(collector="gpu", reason="timeout", lost=2)],
        }
        for kind, told in _TOLD.items():
            numbers = {
                one.field: (number * 10 if one.is_counter else number)
                for one in table().metrics
                if one.source == kind and one.field not in told
            }
            flags = {
                name: True for name in numbers if name.endswith(("_unlimited", "read_only", "unattributed"))
            }
            rows[kind] = [KINDS[kind](**numbers | flags | told)]
        return rows

    def start_daemon(self) -> None:
        super().start_daemon()
        assert self.writer is not None
        card = Card(gpu_uuid="GPU-1", model="A100", driver="550")
        self.writer.append_sysinfo(
            SysInfo(time=self.now(), seq=0, run="", boot=self.boot, boottime=self.boottime(), cards=[card], cpus=4,
                    ticks_per_second=100, interval=10_000, hostname_full="vm.example", hostname_short="vm",
                    cloud_provider="aws", region="eu", instance_type="c7i.large", sockets=1, cores_per_socket=2,
                    threads_per_core=2, numa_nodes=1)
        )  # fmt: skip


class Crowded(Everything):
    """Many of everything that there can be many of."""

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        rows = super().rows(fresh)
        many = {"job": JOBS, "job_info": JOBS, "container": CONTAINERS, "container_info": CONTAINERS, "gpu": GPUS,
                "cpu": 8, "disk": 4, "net": 4, "cgroup": 30}  # fmt: skip
        for kind, count in many.items():
            if fresh or not kind.endswith("_info"):
                rows[kind] = [_numbered(rows[kind][0], number) for number in range(count)]
            else:
                rows[kind] = []
        row = KINDS["process"]
        rows["process"] = [
            row(pid=n, start_ticks=n, user_ticks=round(self.uptime)) for n in range(1, PROCESSES)
        ]
        return rows


def _numbered(row: Any, number: int) -> Any:
    """The same row of another subject."""
    told = {"pgid": number, "cpu_index": number, "container_id": f"{number:064x}", "gpu_uuid": f"GPU-{number}",
            "series_id": f"{number:036}", "device": f"vd{number}", "interface": f"eth{number}", "cgroup": f"/u{number}",
            "job_id": str(number), "gpu_index": number}  # fmt: skip
    fields = {name: value for name, value in told.items() if name in row.__struct_fields__}
    return type(row)(**{name: getattr(row, name) for name in row.__struct_fields__} | fields)


def observed(machine: Machine) -> tuple[Observer, Sample]:
    """What is to be shown of a machine after two samples, and the last of them."""
    machine.start_daemon()
    machine.run(2)
    machine.stop_daemon()
    observer = Observer()
    with open_archive(machine.root) as archive:
        for info in archive.sysinfos():
            observer.learn_machine(info)
        for last in archive.samples():
            observer.observe(last)
    return observer, last


#: What tells the rows of a kind apart.
_TOLD: dict[str, dict[str, Any]] = {
    "node": {"ticks_per_second": 100},
    "cpu": {"cpu_index": 0},
    "disk": {"device": "vda", "device_major": 8, "device_minor": 0},
    "filesystem": {"device_major": 8, "device_minor": 1, "mount_point": "/", "fs_type": "ext4"},
    "netfs": {
        "device_major": 0,
        "device_minor": 50,
        "mount_point": "/home",
        "fs_type": "nfs4",
        "server": "nas",
    },
    "net": {"interface": "eth0", "interface_kind": "physical", "default_route": True},
    "fabric": {"fabric_device": "mlx5_0", "fabric_port": 1},
    "pressure": {"resource": "cpu"},
    "energy": {"meter": "rapl:package-0", "energy_source": "rapl", "energy_range": 2**40},
    "gpu": {"gpu_uuid": "GPU-1", "gpu_index": 0, "vendor": "nvidia"},
    "container": {"container_id": "ab" * 32, "start_boottime": 10**9, "network_shared": False},
    "cgroup": {"cgroup": "/system.slice/a.service", "cgroup_kind": "service", "unit_name": "a.service"},
    "job": {"pgid": 20, "start_ticks": 5000, "io_partial": True},
    "cost": {},
}
