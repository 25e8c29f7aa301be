"""Writes what a simulated machine would have recorded: counters that advance tick by tick."""

from datetime import timedelta

from vmsonar_archive.records import (
    Card,
    ContainerInfoRow,
    ContainerRow,
    CpuRow,
    DiskRow,
    EnergyRow,
    EventRow,
    GpuProcessRow,
    GpuRow,
    JobInfoRow,
    JobRow,
    NetRow,
    NodeRow,
    PressureRow,
    ProcessInfoRow,
    ProcessRow,
    Row,
    SysInfo,
)
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making.archives import encoded
from tests.making.machines import BOOT, GIB, TICKS, Box, Load, Machine, at


class Recorder:
    """Advances the counters tick by tick; a rate holds over the interval before its sample."""

    def __init__(self, machine: Machine, writer: ArchiveWriter) -> None:
        self.machine = machine
        self.writer = writer
        self.node: dict[str, float] = {}
        self.gpu_energy: dict[str, float] = {}

    def run(self, seconds: float) -> None:
        machine = self.machine
        self.writer.append_sysinfo(self._sysinfo())
        second = 0.0
        while second <= seconds:
            time = machine.start + timedelta(seconds=second)
            if second > 0:
                self._advance(second)
            if not any(begin < second < end for begin, end in machine.silent):
                fresh = self.writer.begins_segment(time)
                self.writer.append(
                    time, BOOT, int((1000 + second) * 1e9), encoded(dict(self._rows(second, fresh)))
                )
            second += machine.interval

    def _sysinfo(self) -> SysInfo:
        machine = self.machine
        cards = [
            Card(
                gpu_uuid=uuid,
                gpu_index=index,
                vendor="nvidia",
                model="NVIDIA A100-SXM4-40GB",
                memory=40 * GIB,
            )
            for index, uuid in enumerate(machine.gpus)
        ]
        return SysInfo(
            time=machine.start, seq=0, run="", boot=BOOT, boottime=1000 * 10**9,
            hostname_short=machine.hostname, machine_id=machine.machine_id, cloud_provider=machine.provider,
            instance_type=machine.instance_type, os_name=machine.os_name, kernel_release="6.12.0",
            cpu_model="Intel(R) Xeon(R) Platinum 8488C", cpus=machine.cpus, memory_total=machine.memory,
            ticks_per_second=TICKS, cards=cards, interval=machine.interval * 1000, virtualization="kvm",
            vmsonar_version="0.1.0", core_siblings=machine.core_siblings, instance_id=machine.instance_id,
            config=machine.config,
        )  # fmt: skip

    def _advance(self, second: float) -> None:
        machine, step = self.machine, float(self.machine.interval)
        busy = 0.0
        for load in machine.loads:
            if load.begin < second <= load.end:
                busy += self._advance_load(load, second, step)
        capacity = machine.cpus * step
        stolen = machine.steal * capacity
        for name, amount in (
            ("user", busy * 0.9), ("system", busy * 0.1), ("steal", stolen),
            ("idle", max(0.0, capacity - busy - stolen)), ("forks", at(machine.forks, second) * step),
            ("received", at(machine.received, second) * step), ("sent", at(machine.sent, second) * step),
            ("swapped", machine.swap * step), ("time", step),
        ):  # fmt: skip
            self.node[name] = self.node.get(name, 0.0) + amount
        for resource, share in machine.pressure.items():
            key = f"pressure:{resource}"
            self.node[key] = self.node.get(key, 0.0) + at(share, second) * step * 1e6
        if machine.package_watts is not None:
            joules = at(machine.package_watts, second) * step
            self.node["package"] = self.node.get("package", 0.0) + joules * 1e6
        for uuid in machine.gpus:
            watts = at(machine.gpu_watts, second)
            self.gpu_energy[uuid] = self.gpu_energy.get(uuid, 0.0) + watts * step * 1e6

    def _advance_load(self, load: Load, second: float, step: float) -> float:
        since = second - load.begin
        used = at(load.cores, since) * step
        for name, amount in (
            ("cpu", used), ("read", at(load.read, since) * step), ("write", at(load.write, since) * step),
            ("births", load.births * step), ("faults", load.faults * step),
        ):  # fmt: skip
            load.totals[name] = load.totals.get(name, 0.0) + amount
            self.node[f"all:{name}"] = self.node.get(f"all:{name}", 0.0) + amount
        for box in self.machine.boxes:
            if box.container_id == load.container:
                for name in ("cpu", "read", "write"):
                    amount = used if name == "cpu" else at(getattr(load, name), since) * step
                    box.totals[name] = box.totals.get(name, 0.0) + amount
                box.totals["periods"] = box.totals.get("periods", 0.0) + step * 10
        return used

    def _rows(self, second: float, fresh: bool) -> list[tuple[str, list[Row]]]:
        machine = self.machine
        alive = [load for load in machine.loads if load.alive(second)]
        new = [load for load in alive if fresh or load.begin >= second - machine.interval]
        boxes = [box for box in machine.boxes if self._lives(box, alive)]
        begun = {load.container for load in new}
        return [
            ("node", [self._node(alive, second)]),
            ("cpu", [self._cpu(number, second) for number in range(machine.cpus)]),
            ("disk", [self._disk()]),
            ("net", [self._net()]),
            ("pressure", self._pressure()),
            ("energy", self._energy()),
            ("gpu", [self._gpu(index, uuid, alive, second) for index, uuid in enumerate(machine.gpus)]),
            ("gpu_process", [row for load in alive for row in self._gpu_processes(load, second)]),
            ("container", [self._container(box, alive, second) for box in boxes]),
            ("container_info", [self._container_info(box) for box in boxes if fresh or box.container_id in begun]),
            ("job", [self._job(load, second) for load in alive]),
            ("job_info", [self._job_info(load) for load in new]),
            ("process", [row for load in alive for row in self._processes(load, second)]),
            ("process_info", [row for load in new for row in self._process_infos(load)]),
            ("event", self._events(second)),
            ("gap", [gap for when, gap in machine.gaps if second - machine.interval < when <= second]),
            *self._more(second),
        ]  # fmt: skip

    def _more(self, second: float) -> list[tuple[str, list[Row]]]:
        due = [
            (kind, row)
            for when, kind, row in self.machine.more
            if second - self.machine.interval < when <= second
        ]
        return [
            (kind, [row for other, row in due if other == kind])
            for kind in dict.fromkeys(kind for kind, _ in due)
        ]

    def _total(self, name: str) -> int:
        return int(self.node.get(name, 0.0))

    def _ticks(self, name: str) -> int:
        return round(self.node.get(name, 0.0) * TICKS)

    def _node(self, alive: list[Load], second: float) -> NodeRow:
        machine = self.machine
        used = machine.base_memory + sum(at(load.memory, second - load.begin) for load in alive)
        ooms = sum(1 for box in machine.boxes if box.oom_at is not None and box.oom_at <= second)
        ooms += sum(1 for when in machine.kills if when <= second)
        return NodeRow(
            series_id=self.writer.ids.node(machine.machine_id), ticks_per_second=TICKS, cpus_online=machine.cpus,
            user_ticks=self._ticks("user"), nice_ticks=0, system_ticks=self._ticks("system"),
            idle_ticks=self._ticks("idle"), iowait_ticks=0, irq_ticks=0, softirq_ticks=0,
            steal_ticks=self._ticks("steal"), load1=1.0, load5=1.0, load15=1.0,
            tasks_runnable=int(at(machine.runnable, second)), tasks_existing=100, tasks_blocked=0,
            forks=self._total("forks"), context_switches=0, memory_total=machine.memory,
            memory_free=int(machine.memory - used), memory_available=int(machine.memory - used),
            swap_total=0, swap_free=0, pages_swapped_in=self._total("swapped"),
            pages_swapped_out=self._total("swapped"), major_page_faults=self._total("all:faults"), oom_kills=ooms,
            **machine.ceilings,
        )  # fmt: skip

    def _cpu(self, number: int, second: float) -> CpuRow:
        if not self.machine.cpu_busy:
            return CpuRow(cpu_index=number, idle_ticks=0)
        busy = round(self.machine.cpu_busy.get(number, 0.0) * second * TICKS)
        return CpuRow(cpu_index=number, user_ticks=busy, idle_ticks=round(second * TICKS) - busy, nice_ticks=0,
                      system_ticks=0, iowait_ticks=0, irq_ticks=0, softirq_ticks=0, steal_ticks=0)  # fmt: skip

    def _disk(self) -> DiskRow:
        local = 0 if self.machine.remote else 1
        return DiskRow(
            device="nvme0n1", device_major=259, device_minor=0,
            read_sectors=local * self._total("all:read") // 512, write_sectors=local * self._total("all:write") // 512,
            reads=0, writes=0, busy_time=int(self._total("time") * 10),
        )  # fmt: skip

    def _net(self) -> NetRow:
        received, sent = self._total("received"), self._total("sent")
        return NetRow(interface="eth0", received_bytes=received, sent_bytes=sent)

    def _pressure(self) -> list[Row]:
        return [
            PressureRow(resource=resource, some_time=self._total(f"pressure:{resource}"), full_time=0)
            for resource in ("cpu", "memory", "io")
        ]

    def _energy(self) -> list[Row]:
        if self.machine.package_watts is None:
            return []
        wrap = 262_143_328_850
        return [
            EnergyRow(
                meter="rapl:package-0",
                energy_source="rapl",
                energy=self._total("package") % wrap,
                energy_range=wrap,
            )
        ]

    def _gpu(self, index: int, uuid: str, alive: list[Load], second: float) -> GpuRow:
        on_it = [load for load in alive if uuid in load.gpu]
        return GpuRow(
            gpu_uuid=uuid, series_id=self.writer.ids.gpu(uuid), gpu_index=index, vendor="nvidia",
            gpu_util=min(100.0, sum(at(load.gpu[uuid], second - load.begin) for load in on_it)),
            gpu_util_source="nvml", memory_used=int(sum(load.gpu_memory for load in on_it)),
            memory_total=40 * GIB, power=at(self.machine.gpu_watts, second),
            energy=int(self.gpu_energy.get(uuid, 0.0)), energy_source="counter", temperature=40.0,
        )  # fmt: skip

    def _gpu_processes(self, load: Load, second: float) -> list[Row]:
        return [
            GpuProcessRow(
                gpu_uuid=uuid, pid=load.pgid, start_ticks=load.start_ticks, pgid=load.pgid, usage="compute",
                # The driver does not speak of a process that was idle.
                gpu_util=at(curve, second - load.begin) or None, gpu_util_source="nvml",
                memory_used=int(load.gpu_memory),
            )
            for uuid, curve in load.gpu.items()
        ]  # fmt: skip

    def _lives(self, box: Box, alive: list[Load]) -> bool:
        return any(load.container == box.container_id for load in alive)

    def _container(self, box: Box, alive: list[Load], second: float) -> ContainerRow:
        inside = [load for load in alive if load.container == box.container_id]
        used = int(sum(at(load.memory, second - load.begin) for load in inside))
        periods = int(box.totals.get("periods", 0.0))
        killed = 1 if box.oom_at is not None and box.oom_at <= second else 0
        # Whoever is killed at its limit had reached it, however short a time before.
        peak = box.limit if killed and box.limit else used
        return ContainerRow(
            container_id=box.container_id, cgroup_version=2, cpu_time=int(box.totals.get("cpu", 0.0) * 1e9),
            periods=periods, throttled_periods=int(periods * box.throttled),
            throttled_time=int(box.totals.get("cpu", 0.0) * 1e9 * box.throttled),
            cpu_quota=None if box.quota is None else int(box.quota * 100_000), cpu_period=100_000,
            cpu_unlimited=box.quota is None, memory_used=used, memory_peak=peak, memory_anonymous=used,
            memory_limit=box.limit, memory_unlimited=box.limit is None, oom_events=killed, oom_kills=killed,
            processes=len(inside), processes_limit=box.processes_limit,
            pids_max_events=int(box.refused_at is not None and box.refused_at <= second),
            read_bytes=int(box.totals.get("read", 0.0)), write_bytes=int(box.totals.get("write", 0.0)),
            received_bytes=0, sent_bytes=0,
        )  # fmt: skip

    def _container_info(self, box: Box) -> ContainerInfoRow:
        return ContainerInfoRow(
            series_id=self.writer.ids.container(box.container_id), container_id=box.container_id, engine="docker",
            name=box.name, image=box.image, user_name=box.user, user_id=1000, user_source="label",
            started=self.machine.start, labels=box.labels,
        )  # fmt: skip

    def _job(self, load: Load, second: float) -> JobRow:
        ticks = load.totals.get("cpu", 0.0) * TICKS
        user = round(ticks * 0.9)
        memory = int(at(load.memory, second - load.begin))
        return JobRow(
            pgid=load.pgid, start_ticks=load.start_ticks, processes=len(load.workers),
            processes_seen=len(load.workers) + int(load.totals.get("births", 0.0)),
            threads=load.threads * len(load.workers), user_ticks=user, system_ticks=round(ticks) - user,
            unattributed=True if load.unattributed else None, major_faults=int(load.totals.get("faults", 0.0)),
            memory=memory, memory_source="sum", resident=memory,
            read_bytes=int(load.totals.get("read", 0.0)), write_bytes=int(load.totals.get("write", 0.0)),
            **load.group(second),
        )  # fmt: skip

    def _job_info(self, load: Load) -> JobInfoRow:
        return JobInfoRow(
            series_id=self.writer.ids.job(BOOT, load.pgid, load.start_ticks), pgid=load.pgid,
            start_ticks=load.start_ticks, job_id=load.job_id or str(load.pgid),
            job_source="slurm" if load.job_id else "process_group", batch_step=load.step, batch_task=load.task,
            user_name=load.user, user_id=1000,
            user_source="uid", started=self.machine.start + timedelta(seconds=load.begin),
            first_seen=self.machine.start + timedelta(seconds=load.begin), program=load.command.split()[0],
            command=load.command, container_id=load.container, **load.ulimits,
        )  # fmt: skip

    def _processes(self, load: Load, second: float) -> list[Row]:
        share = sum(load.workers) or 1.0
        rows: list[Row] = []
        for number, weight in enumerate(load.workers):
            ticks = round(load.totals.get("cpu", 0.0) * TICKS * (1 - load.unseen) * weight / share)
            memory = int(at(load.memory, second - load.begin) / len(load.workers))
            rows.append(
                ProcessRow(
                    pid=load.pgid + number, start_ticks=load.start_ticks, pgid=load.pgid, ppid=1, state=load.state,
                    threads=load.threads, user_ticks=ticks, system_ticks=0, resident=memory, shared=0,
                    read_bytes=int(load.totals.get("read", 0.0) / len(load.workers)),
                    write_bytes=int(load.totals.get("write", 0.0) / len(load.workers)),
                )
            )  # fmt: skip
        return rows

    def _process_infos(self, load: Load) -> list[Row]:
        return [
            ProcessInfoRow(
                series_id=self.writer.ids.process(BOOT, load.pgid + number, load.start_ticks),
                pid=load.pgid + number, start_ticks=load.start_ticks, user_name=load.user, user_id=1000,
                user_source="uid", started=self.machine.start + timedelta(seconds=load.begin),
                program=load.command.split()[0], command=load.command, container_id=load.container,
            )
            for number in range(len(load.workers))
        ]  # fmt: skip

    def _events(self, second: float) -> list[Row]:
        step = self.machine.interval
        found: list[Row] = [event for when, event in self.machine.events if second - step < when <= second]
        for load in self.machine.loads:
            if second - step < load.end + step <= second:
                found.append(
                    EventRow(
                        event_type="job_end",
                        pgid=load.pgid,
                        start_ticks=load.start_ticks,
                        series_id=self.writer.ids.job(BOOT, load.pgid, load.start_ticks),
                    )
                )
        for box in self.machine.boxes:
            if box.oom_at is not None and second - step < box.oom_at <= second:
                found.append(EventRow(event_type="container_oom", container_id=box.container_id))
                found.append(
                    EventRow(event_type="container_die", container_id=box.container_id, exit_code=137)
                )
        return found
