"""The configuration: these Structs are its only definition; docs/configuration.md is generated from them."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from vmsonar_archive.records.fields import about
from vmsonar_archive.system.text import where_it_leads

from vmsonar.config.quantities import (
    ByteSize,
    Days,
    Duration,
    Interval,
    Section,
    parse_duration,
    parse_size,
    show_duration,
    write_size,
)
from vmsonar.config.shipping import FleetSection, Forward, Metrics, Save
from vmsonar.host.roots import Host

#: What compose, the OCI annotations and the usual orchestrators say about what a container is.
DEFAULT_LABELS = (
    "com.docker.compose.project",
    "com.docker.compose.service",
    "com.docker.compose.container-number",
    "com.docker.stack.namespace",
    "com.docker.swarm.*",
    "com.hashicorp.nomad.*",
    "io.kubernetes.*",
    "io.podman.compose.project",
    "io.podman.compose.service",
    "org.opencontainers.image.*",
)
_MAX_LENGTH = 1024
_MAX_NAME = 256
_MOST_LABELS = 32


def allowed(labels: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str] | None:
    """The first labels that a pattern names, bounded in number and length; None when there are none."""
    short = (name for name in sorted(labels) if len(name) <= _MAX_NAME)
    named = (name for name in short if any(fnmatchcase(name, pattern) for pattern in patterns))
    return {name: labels[name][:_MAX_LENGTH] for name in islice(named, _MOST_LABELS)} or None


Switch = Literal["auto", "none"]
# Every process is compared with all of them at every tick.
_MOST = 1000


class UidRange:
    """An inclusive range of numeric user ids."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def __contains__(self, uid: int) -> bool:
        return self.first <= uid <= self.last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UidRange) and (self.first, self.last) == (other.first, other.last)

    def __hash__(self) -> int:
        return hash((self.first, self.last))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class Selection(Section, frozen=True):
    """Which to keep and which to leave out; leaving out wins, an empty `keep` keeps all."""

    keep: Annotated[list[str], Meta(description="Only these.", max_length=_MOST)] = []
    leave_out: Annotated[list[str], Meta(description="All but these.", max_length=_MOST)] = []


class UidSelection(Section, frozen=True):
    """The same for numeric user ids and ranges of them, such as `1000-1999`."""

    keep: Annotated[list[UidRange], Meta(description="Only these.", max_length=_MOST)] = []
    leave_out: Annotated[list[UidRange], Meta(description="All but these.", max_length=_MOST)] = []


class Filters(Section, frozen=True):
    """Which processes are recorded. A process that is left out still counts in the node's totals."""

    users: Annotated[Selection, about("User names.")] = Selection()
    uids: Annotated[UidSelection, about("User ids and ranges, such as `1000-1999`.")] = UidSelection()
    commands: Annotated[
        Selection, about("Patterns (`*`, `?`, `[a-z]`) over the kernel's name of the process.")
    ] = Selection()
    cgroups: Annotated[Selection, about("Patterns over the control group's path.")] = Selection()
    kernel_threads: Annotated[Literal["leave_out", "keep"], about("Whether kernel threads are recorded.")] = (
        "leave_out"
    )


class Collectors(Section, frozen=True):
    """Each collector: `auto` collects what can be seen here, `none` switches it off."""

    node: Annotated[Switch, about("CPU time, memory, load, tasks, forks of the machine.")] = "auto"
    cpu: Annotated[Switch, about("Time of each logical CPU.")] = "auto"
    disk: Annotated[Switch, about("Block devices.")] = "auto"
    filesystem: Annotated[Switch, about("Room on file systems.")] = "auto"
    netfs: Annotated[Switch, about("Network file systems: what the client of each has counted.")] = "auto"
    net: Annotated[Switch, about("Network interfaces.")] = "auto"
    fabric: Annotated[Switch, about("Ports of InfiniBand, RoCE and EFA devices.")] = "auto"
    pressure: Annotated[Switch, about("Pressure stall information.")] = "auto"
    process: Annotated[Switch, about("Processes; jobs need it.")] = "auto"
    job: Annotated[Switch, about("Process groups and batch jobs.")] = "auto"
    container: Annotated[Switch, about("Containers, by their control groups.")] = "auto"
    cgroup: Annotated[
        Switch, about("Control groups that are no containers: Slurm jobs, services, sessions.")
    ] = "auto"
    slurm: Annotated[
        Switch,
        about("Jobs and nodes as Slurm tells them: `auto` asks it, on one node of a cluster or on each."),
    ] = "none"
    gpu: Annotated[Switch, about("GPUs and the processes on them.")] = "auto"
    energy: Annotated[Switch, about("Energy counters of the CPU packages and the board.")] = "auto"


class Lifeline(Section, frozen=True):
    """How births and deaths of processes are followed between two samples."""

    connector: Annotated[
        Switch, about("Whether the kernel is asked to tell them; `none` leaves it at what samples show.")
    ] = "auto"
    share: Annotated[
        float,
        Meta(
            description="Per cent of a core that listening may take; in a storm it stops until the next sample.",
            ge=0.1,
            le=100.0,
        ),
    ] = 3.0


class Gpu(Section, frozen=True):
    """How GPUs are read."""

    vendors: Annotated[list[Literal["nvidia", "amd", "intel"]], about("Which makers' drivers are asked.")] = (
        field(default_factory=lambda: ["nvidia", "amd", "intel"])
    )
    processes: Annotated[Switch, about("Whether use is attributed to processes where the driver tells.")] = (
        "auto"
    )


class Containers(Section, frozen=True):
    """How containers get their names, images and labels."""

    engine: Annotated[
        Literal["auto", "docker", "podman", "none"],
        about("Whom the companion asks; `none` records control groups without names."),
    ] = "auto"
    socket: Annotated[str | None, about("Path of the engine's socket, where it is not the usual one.")] = None
    labels: Annotated[
        list[str],
        Meta(description="Labels to record, as names or patterns; no other is kept.", max_length=_MOST),
    ] = field(default_factory=lambda: list(DEFAULT_LABELS))


class Cgroups(Section, frozen=True):
    """Which control groups that are no containers are recorded, each at what a container costs."""

    kinds: Annotated[
        list[Literal["slurm", "service", "session", "scope", "pod"]],
        about(
            "`slurm` jobs and steps, systemd's `service`, login `session` and other `scope`, and Kubernetes' `pod`."
        ),
    ] = field(default_factory=lambda: ["slurm", "service"])


class Slurm(Section, frozen=True):
    """How Slurm is asked, by a process of its own; `collectors.slurm: auto` switches it on."""

    interval: Annotated[Duration, about("Time from one question to the next; never asked more often.")] = (
        Duration(120)
    )
    timeout: Annotated[Duration, about("How long one of its programs may take.")] = Duration(30)
    jobs: Annotated[
        Literal["all", "node"], about("Jobs of the whole cluster, or only those on the node that asks.")
    ] = "all"
    folder: Annotated[
        str | None, about("Where `sacct`, `sinfo` and `scontrol` are, if not where they usually are.")
    ] = None
    conf: Annotated[str | None, about("Path of slurm.conf, where it is not in its usual place.")] = None


class Accounts(Section, frozen=True):
    """Exact accounts of processes that ended, from a companion with CAP_NET_ADMIN (`vmsonar install --accounts`)."""

    use: Annotated[Switch, about("`auto` takes them where the companion runs, `none` never.")] = "auto"
    socket: Annotated[
        str | None, about("Where the companion listens. By default `/run/vmsonar/accounts.sock`.")
    ] = None
    start: Annotated[
        Switch,
        about(
            "`auto` starts a companion where none listens and the recorder itself has the capability, "
            "as root without systemd does."
        ),
    ] = "none"


class BudgetSection(Section, frozen=True):
    """What the archive may take; the oldest sealed segment goes first."""

    max_bytes: Annotated[
        ByteSize | None,
        about("Size of the archive. By default the smaller of 2 GiB and 5 % of the file system."),
    ] = None
    max_days: Annotated[Days | None, about("Age of the oldest segment, in days.")] = None
    min_free: Annotated[ByteSize, about("Space that stays free on the file system.")] = ByteSize(512 * 2**20)


class Config(Section, frozen=True):
    """One YAML file; every key is optional."""

    archive: Annotated[
        str | None,
        about(
            "Where to record. By default `/var/lib/vmsonar`, or `$XDG_STATE_HOME/vmsonar` "
            "for an ordinary user. `--archive` and `VMSONAR_ARCHIVE` override it."
        ),
    ] = None
    interval: Annotated[Interval, about("Time between samples, from 10ms to 1d.")] = Interval(10)
    procfs: Annotated[str, about("Where the machine's /proc is mounted.")] = "/proc"
    sysfs: Annotated[str, about("Where the machine's /sys is mounted.")] = "/sys"
    command_line: Annotated[
        Literal["none", "program", "full"],
        about(
            "How much of a command line is recorded: nothing; the program, and an interpreter's "
            "script or module; or all of it, with what looks like a secret masked."
        ),
    ] = "program"
    log: Annotated[Literal["error", "warning", "info", "debug"], about("The least that is logged.")] = "info"
    filters: Annotated[Filters, about("Which processes are recorded.")] = Filters()
    collectors: Annotated[Collectors, about("What is collected.")] = Collectors()
    lifeline: Annotated[
        Lifeline, about("How births and deaths of processes are followed between two samples.")
    ] = Lifeline()
    gpu: Annotated[Gpu, about("How GPUs are read.")] = Gpu()
    containers: Annotated[Containers, about("How containers get their names.")] = Containers()
    cgroups: Annotated[Cgroups, about("Which other control groups are recorded.")] = Cgroups()
    slurm: Annotated[Slurm, about("How Slurm is asked.")] = Slurm()
    accounts: Annotated[Accounts, about("Exact accounts of processes that ended.")] = Accounts()
    budget: Annotated[BudgetSection, about("What the archive may take.")] = BudgetSection()
    forward: Annotated[Forward, about("Where `vmsonar forward` sends records.")] = Forward()
    metrics: Annotated[Metrics, about("What `vmsonar metrics` shows, and to whom.")] = Metrics()
    save: Annotated[
        Save, about("Where `vmsonar teardown` brings what was recorded before the VM is gone.")
    ] = Save()
    fleet: Annotated[FleetSection, about("The receiving half: `vmsonar collect`.")] = FleetSection()

    @property
    def host(self) -> Host:
        """The roots that the collectors read."""
        return Host(proc=Path(self.procfs), sys=Path(self.sysfs))


def decode_value(kind: Any, value: Any) -> Any:
    """Turns what stands in the file into the types that YAML does not have."""
    if kind is Duration:
        return parse_duration(_word(value, "a duration such as 10s"))
    if kind is Interval:
        return interval(_word(value, "a duration such as 10s"))
    if kind is ByteSize:
        return parse_size(str(value) if type(value) is int else _word(value, "a size such as 2GiB"))
    if kind is UidRange:
        return _uid_range(str(value))
    raise NotImplementedError(kind)


def encode_value(value: Any) -> Any:
    """The opposite: how such a value is written."""
    if isinstance(value, Duration):
        return show_duration(value)
    if isinstance(value, ByteSize):
        return write_size(value)
    if isinstance(value, UidRange):
        return str(value)
    raise NotImplementedError(type(value))


def plain(config: Config) -> dict[str, Any]:
    """The configuration as it could stand in a file; it names files that hold secrets, and of URLs only the host."""
    answer: dict[str, Any] = msgspec.to_builtins(config, enc_hook=encode_value)
    for section, key in (
        (answer["forward"], "url"),
        (answer["save"], "to"),
        (answer["fleet"]["hooks"], "webhook"),
    ):
        if section[key] is not None:
            section[key] = where_it_leads(section[key])
    return answer


def _word(value: Any, wanted: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {wanted}, got {value!r}")
    return value


def interval(text: str) -> Interval:
    """A sampling interval, within bounds that a machine and a reader can bear."""
    duration = parse_duration(text)
    if not 0.01 <= duration <= 86400:
        raise ValueError(f"{text} is not between 10ms and 1d")
    return Interval(duration)


def _uid_range(text: str) -> UidRange:
    match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ValueError(f"{text[:40]!r} is not a user id or a range such as 1000-1999")
    return UidRange(int(match[1]), int(match[2] or match[1]))
