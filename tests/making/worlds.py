"""A small machine whose truth is known: a scripted history, recorded through the real writer."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.records import (
    ContainerInfoRow,
    ContainerRow,
    DiskRow,
    EnergyRow,
    GpuRow,
    JobInfoRow,
    JobRow,
    NetRow,
    NodeRow,
    PressureRow,
    ProcessInfoRow,
    ProcessRow,
    SysInfo,
)
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making.archives import BOOT, START, encoded, open_writer

CONTAINER = "ab" * 32
GPU = "GPU-11111111-2222-3333-4444-555555555555"
USAGE = "SELECT archive, pgid, samples, round(cpu_seconds, 3) FROM job_usage ORDER BY ALL"
SECOND_BOOT = "00000000-1111-2222-3333-444444444444"


@dataclass
class Job:
    """One job: lives from start to end (seconds on the machine's own clock), with so many cores busy."""

    pgid: int
    start: float
    end: float
    cores: float
    memory: int = 100 * 2**20
    write_rate: int = 0
    user: str = "alice"
    command: str = "python3 train.py"
    #: When its counter falls to zero.
    reset: float = 1e9

    def cpu_ticks(self, now: float) -> int:
        fallen = self.used_ticks(self.reset) if now >= self.reset else 0
        return self.used_ticks(now) - fallen

    def used_ticks(self, now: float) -> int:
        return round((min(now, self.end) - self.start) * self.cores * 100)


@dataclass
class Machine:
    """Records itself; `clock_offset` shifts the wall clock only, as a step does."""

    root: Path
    machine_id: str = "0123456789abcdef0123456789abcdef"
    hostname: str = "vm"
    jobs: list[Job] = field(default_factory=list)
    boot: str = BOOT
    #: Seconds on CLOCK_BOOTTIME, and when that clock began.
    uptime: float = 100.0
    booted: datetime = START - timedelta(seconds=100)
    clock_offset: float = 0.0
    #: A container's counters start again from here.
    container_start: float | None = None
    container_cores: float = 0.5
    #: When the counters of disks, interfaces and GPUs began at zero, as after a driver was loaded again.
    devices_since: float = 0.0
    writer: ArchiveWriter | None = None
    fresh: bool = True

    def start_daemon(self) -> None:
        node = NodeIdentity(machine_id=self.machine_id, hostname_short=self.hostname)
        self.writer = open_writer(self.root, node=node, now=lambda: START + timedelta(days=40))
        self.fresh = True
        self.writer.append_sysinfo(
            SysInfo(
                time=self.now(), seq=0, run="", boot=self.boot, boottime=self.boottime(), cpus=4,
                memory_total=2**33, ticks_per_second=100, interval=10_000, hostname_short=self.hostname,
            )
        )  # fmt: skip

    def stop_daemon(self) -> None:
        assert self.writer is not None
        assert self.writer.close()
        self.writer = None

    def reboot(self, boot: str, after: float = 60.0) -> None:
        """Everything ends; the machine's own clock begins anew."""
        self.booted = self.booted + timedelta(seconds=self.uptime + after)
        self.boot, self.uptime, self.jobs, self.container_start = boot, 0.0, [], None

    def now(self) -> datetime:
        return self.booted + timedelta(seconds=self.uptime + self.clock_offset)

    def boottime(self) -> int:
        return round(self.uptime * 1e9)

    def run(self, samples: int, seconds: float = 10.0) -> None:
        """Takes so many samples, each so many seconds after the one before."""
        for _ in range(samples):
            self.uptime += seconds
            self.sample()

    def sample(self) -> None:
        assert self.writer is not None
        fresh = self.fresh or self.writer.begins_segment(self.now())
        self.fresh = False
        self.writer.append(self.now(), self.boot, self.boottime(), encoded(self.rows(fresh)))

    def alive(self) -> list[Job]:
        return [job for job in self.jobs if job.start <= self.uptime <= job.end]

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        """Everything a sample holds; all rates are constant, so that the truth is easy."""
        up, on = self.uptime, self.uptime - self.devices_since
        busy = sum(job.used_ticks(up) for job in self.jobs if job.start <= up)
        rows: dict[str, list[Any]] = {
            "node": [
                NodeRow(
                    ticks_per_second=100, cpus_online=4, user_ticks=busy, nice_ticks=0, system_ticks=round(up * 10),
                    idle_ticks=round(up * 390) - busy, iowait_ticks=0, irq_ticks=0, softirq_ticks=0, steal_ticks=0,
                    memory_total=2**33, memory_available=2**32, load1=1.0, context_switches=round(up * 1000), forks=7,
                )
            ],
            "disk": [
                DiskRow(device="vda", device_major=254, device_minor=0, reads=round(on), writes=round(2 * on),
                        read_sectors=round(on * 2048), write_sectors=round(on * 4096), busy_time=round(on * 100)),
                DiskRow(device="dm-0", device_major=253, device_minor=0, read_sectors=round(on * 2048)),
            ],
            "net": [
                NetRow(interface="eth0", received_bytes=round(on * 1e6), sent_bytes=round(on * 5e5)),
                NetRow(interface="lo", received_bytes=round(on * 1e9), sent_bytes=round(on * 1e9)),
            ],
            "pressure": [PressureRow(resource="cpu", some_time=round(on * 250_000), full_time=0)],
            "energy": [EnergyRow(meter="rapl:package-0", energy_source="rapl",
                                 energy=round(up * 20e6) % 8_000_000_000, energy_range=8_000_000_000)],
            "gpu": [GpuRow(gpu_uuid=GPU, gpu_index=0, gpu_util=50.0, memory_used=2**30, memory_total=2**34,
                           power=100.0, energy=round(on * 100e6), energy_source="counter")],
            "job": [], "process": [], "job_info": [], "process_info": [], "container": [], "container_info": [],
        }  # fmt: skip
        for job in self.alive():
            self._add_job(rows, job, fresh)
        self._add_container(rows, fresh)
        return rows

    def _add_job(self, rows: dict[str, list[Any]], job: Job, fresh: bool) -> None:
        assert self.writer is not None
        ticks, start = job.cpu_ticks(self.uptime), round(job.start * 100)
        written = round((self.uptime - job.start) * job.write_rate)
        rows["job"].append(JobRow(pgid=job.pgid, start_ticks=start, processes=1, processes_seen=1, threads=2,
                                  user_ticks=ticks, system_ticks=0, memory=job.memory, resident=job.memory,
                                  read_bytes=0, write_bytes=written))  # fmt: skip
        rows["process"].append(ProcessRow(pid=job.pgid, start_ticks=start, pgid=job.pgid, ppid=1, state="R", threads=2,
                                          user_ticks=ticks, system_ticks=0, resident=job.memory, shared=0,
                                          read_bytes=0, write_bytes=written))  # fmt: skip
        if fresh or job.start > self.uptime - 10:
            ids, owner = self.writer.ids, {"user_id": 1000, "user_name": job.user, "user_source": "uid"}
            named = {"program": job.command.split()[0], "command": job.command, **owner}
            rows["job_info"].append(JobInfoRow(series_id=ids.job(self.boot, job.pgid, start), pgid=job.pgid,
                                               start_ticks=start, job_id=str(job.pgid), **named))  # fmt: skip
            rows["process_info"].append(ProcessInfoRow(series_id=ids.process(self.boot, job.pgid, start),
                                                       pid=job.pgid, start_ticks=start, **named))  # fmt: skip

    def _add_container(self, rows: dict[str, list[Any]], fresh: bool) -> None:
        if self.container_start is None or self.uptime < self.container_start:
            return
        assert self.writer is not None
        age = self.uptime - self.container_start
        cpu_time = round(age * self.container_cores * 1e9)
        rows["container"].append(
            ContainerRow(
                container_id=CONTAINER,
                cpu_time=cpu_time,
                memory_used=2**28,
                memory_limit=2**29,
                read_bytes=round(age * 1000),
            )
        )
        if fresh or age <= 10:
            started = self.booted + timedelta(seconds=self.container_start + self.clock_offset)
            rows["container_info"].append(ContainerInfoRow(series_id=self.writer.ids.container(CONTAINER),
                                                           container_id=CONTAINER, name="web", image="nginx",
                                                           labels={"tier": "front"}, started=started))  # fmt: skip


def make_history(root: Path) -> Path:
    """Restarts, a reboot, a gap, a clock step and counters that fall."""
    machine = Machine(root)
    machine.jobs = [
        # Runs before the record begins.
        Job(10, start=50.0, end=1e9, cores=1.0, user="root", command="old daemon"),
        Job(20, start=203.0, end=503.0, cores=2.0, memory=2**30, write_rate=1_000_000),
        Job(30, start=325.0, end=330.5, cores=0.5, user="bob"),  # seen once
        Job(40, start=410.0, end=480.0, cores=0.1, memory=2**29),  # beside job 20, of the same user
        Job(50, start=812.0, end=845.0, cores=0.1, memory=2**30),  # after both
        Job(60, start=60.0, end=1e9, cores=0.2, user="carol", reset=820.0),  # its counters fall
    ]
    machine.container_start = 212.0
    machine.start_daemon()
    machine.run(20)  # 110 … 300
    machine.stop_daemon()
    machine.clock_offset = 3600.0  # the clock steps by an hour while the daemon restarts
    machine.start_daemon()
    machine.run(10)  # 310 … 400
    machine.container_start = 402.0  # the container is started again: its counters begin at zero
    machine.run(10)  # 410 … 500
    machine.run(1, seconds=300.0)  # a gap: 800
    machine.devices_since = 805.0  # the counters of disks, interfaces and GPUs begin at zero
    machine.run(5)
    machine.stop_daemon()
    machine.reboot(SECOND_BOOT)
    machine.jobs = [Job(20, start=5.0, end=1e9, cores=3.0, command="after the reboot")]
    machine.start_daemon()
    machine.run(10)
    machine.stop_daemon()
    return root


def make(root: Path, samples: int = 30, **settings: object) -> Machine:
    """One job on one machine, recorded by one daemon."""
    machine = Machine(root, **settings)  # type: ignore[arg-type]
    machine.jobs = [Job(20, start=123.0, end=1e9, cores=2.0)]
    machine.start_daemon()
    machine.run(samples)
    machine.stop_daemon()
    return machine


def make_days(root: Path) -> Machine:
    """Two days: a job crosses midnight, another one begins between the last sample of a day and the next."""
    machine = Machine(root, booted=datetime(2026, 11, 15, 23, 50, tzinfo=UTC), uptime=0.0)
    machine.jobs = [
        Job(20, start=33.0, end=1e9, cores=2.0, write_rate=1000),
        Job(30, start=593.0, end=1e9, cores=1.0),
    ]
    machine.start_daemon()
    machine.run(119)  # up to 1190 s; midnight is at 600 s
    machine.stop_daemon()
    return machine
