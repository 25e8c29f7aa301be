"""What a converter must remember between samples: the machine, its boots, its processes and their last CPU time."""

from bisect import bisect_right
from datetime import UTC, datetime
from typing import Literal

import msgspec

from vmsonar_archive.records import JobInfoRow, ProcessInfoRow, Sample, SysInfo
from vmsonar_archive.records.sample import Stamp

HostName = Literal["full", "short"]
ProcessKey = tuple[int, int]

# Dead processes are forgotten when they outnumber the living by this.
_SLACK = 1000
# So many digits fit 64 bits.
_DIGITS = 18


class SonarMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a sysinfo record that the samples after it are read with."""

    hostname_full: str | None = None
    hostname_short: str | None = None
    ticks_per_second: int = 100
    cpus: int = 0
    #: GPU indices and memory in bytes by UUID.
    cards: dict[str, tuple[int | None, int | None]] = {}

    def name(self, which: HostName) -> str | None:
        """The host name in the form that is wanted, or the one there is."""
        full, short = self.hostname_full, self.hostname_short
        return (full or short) if which == "full" else (short or full)


class SonarProcess(msgspec.Struct, frozen=True):
    """What a process's rows are told with."""

    user: str
    command: str | None
    contained: bool


class Infos(Stamp, kw_only=True):
    """The part of a sample that is remembered for the ones after it: cheaper to decode than all of it."""

    job_info: list[JobInfoRow] = msgspec.field(default_factory=list)
    process_info: list[ProcessInfoRow] = msgspec.field(default_factory=list)


class History:
    """Fed with every record in order, whether it is converted or only passed over."""

    def __init__(self, boots: dict[str, int] | None = None) -> None:
        """`boots` are boot times that were told before: they must not be told differently later."""
        self.boots = dict(boots or {})
        self.processes: dict[ProcessKey, SonarProcess] = {}
        self.batch_jobs: dict[int, int] = {}
        #: CPU ticks of each process at the last sample, when that was, and in which boot.
        self.ticks: dict[ProcessKey, int] = {}
        self.ticks_at: int | None = None
        self.boot: str | None = None
        self._machines: list[tuple[int, SonarMachine]] = []

    def learn_machine(self, info: SysInfo) -> None:
        """Takes in a sysinfo record; what follows it is read by it."""
        machine = SonarMachine(
            hostname_full=info.hostname_full,
            hostname_short=info.hostname_short,
            ticks_per_second=info.ticks_per_second or 100,
            cpus=info.cpus or 0,
            cards={card.gpu_uuid: (card.gpu_index, card.memory) for card in info.cards or ()},
        )
        if info.booted is not None:
            self.boots.setdefault(info.boot, int(info.booted.timestamp()))
        if not self._machines or self._machines[-1][1] != machine:
            self._machines.append((info.seq, machine))

    def machine_at(self, seq: int) -> SonarMachine:
        """The machine as it was described last before this record, or first after it."""
        at = bisect_right(self._machines, seq, key=lambda entry: entry[0])
        return self._machines[max(0, at - 1)][1] if self._machines else SonarMachine()

    def boot_time(self, sample: Stamp) -> int:
        """Seconds since 1970 at which the kernel started; the same for all records of one boot."""
        computed = int(sample.time.timestamp() - sample.boottime / 1e9)
        return self.boots.setdefault(sample.boot, computed)

    def learn_infos(self, sample: Sample | Infos) -> None:
        """Takes in what a sample says once: whose processes these are, and which are batch jobs."""
        if sample.boot != self.boot:
            self._begin_boot(sample.boot)
        for row in sample.process_info:
            user = row.user_name or f"_user_{'unknown' if row.user_id is None else row.user_id}"
            contained = row.container_id is not None or bool(row.contained)
            self.processes[row.pid, row.start_ticks] = SonarProcess(user, row.program, contained)
        for job in sample.job_info:
            number = number_of(job.job_id) if job.job_source == "slurm" else None
            if number is not None:
                self.batch_jobs[job.pgid] = number
            else:
                self.batch_jobs.pop(job.pgid, None)

    def learn_ticks(self, sample: Sample) -> None:
        """Takes in the CPU time of every process, for the rates of the next sample; one without any teaches nothing."""
        if not sample.process:
            return  # the collector failed, or its rows were left out: everybody is still there
        self.ticks = {
            (row.pid, row.start_ticks): (row.user_ticks or 0) + (row.system_ticks or 0)
            for row in sample.process
        }
        self.ticks_at = sample.boottime
        if len(self.processes) > 2 * len(self.ticks) + _SLACK:
            self.processes = {key: self.processes[key] for key in self.ticks if key in self.processes}

    def _begin_boot(self, boot: str) -> None:
        self.boot = boot
        self.processes.clear()
        self.batch_jobs.clear()
        self.ticks.clear()
        self.ticks_at = None


def number_of(text: str | None) -> int | None:
    """The number of a batch job; None for a name, or what no table could hold."""
    return int(text) if text and len(text) <= _DIGITS and text.isascii() and text.isdigit() else None


def in_seconds(time: datetime) -> str:
    """RFC 3339 in whole seconds, with Z."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
