"""Deaths of every kind, each at its own time, with the evidence that a recorder would have left of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from vmsonar_archive.records import EventRow, FilesystemRow, Row

from tests.making.machines import GIB, MIB, START, Box, Curve, Load, Machine, box_id

KILL, TERM, SEGV, ABRT, BUS, PIPE, XFSZ = 9, 15, 11, 6, 7, 13, 25
SCRATCH = {"device_major": 8, "device_minor": 17, "mount_point": "/scratch", "fs_type": "ext4", "read_only": False,
           "bytes_total": 100 * GIB, "bytes_available": 50 * GIB,
           "inodes_total": 1000, "inodes_available": 900}  # fmt: skip
DATA = SCRATCH | {"device_minor": 18, "mount_point": "/data"}
OVERLAY = {"device_major": 0, "device_minor": 61, "mount_point": "/var/lib/box/merged", "fs_type": "overlay",
           "read_only": False, "bytes_total": 10 * GIB, "bytes_available": 5 * GIB}  # fmt: skip


@dataclass
class Death:
    """One job that ends three seconds after a sample, and the sentence about it."""

    words: str
    told: dict[str, Any] = field(default_factory=dict)
    command: str = "python3 fit.py"
    box: Box | None = None
    #: Rows with the second after its last sample at which they were true.
    rows: list[tuple[float, str, Row]] = field(default_factory=list)
    #: More events: the second after its last sample, and what they say.
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    killed: int = 0
    #: Bytes that it wrote in its last minute.
    wrote: float = 0.0


def code(number: int, **more: Any) -> dict[str, Any]:
    return {"exit_code": number, "exit_source": "connector", **more}


def signal(number: int, **more: Any) -> dict[str, Any]:
    return {"exit_signal": number, "exit_source": "connector", **more}


def disk(at: float, base: dict[str, Any] = SCRATCH, **values: Any) -> tuple[float, str, Row]:
    return at, "filesystem", FilesystemRow(**(base | values))


def box(number: int, **settings: Any) -> Box:
    return Box(box_id(number), f"box-{number}", **settings)


#: By name; each has a time of its own, a hundred seconds after the one before.
DEATHS: dict[str, Death] = {
    "success": Death("exit 0", code(0)),
    "code": Death("exit 7", code(7)),
    "segfault with core": Death("SIGSEGV, core dumped", signal(SEGV, core_dumped=True)),
    "segfault": Death("SIGSEGV", signal(SEGV)),
    "killed": Death("SIGKILL, sender unknown", signal(KILL)),
    "terminated": Death("SIGTERM, sender unknown", signal(TERM)),
    "machine out of memory": Death(
        "SIGKILL by the kernel, for lack of memory in the machine or a control group", signal(KILL), killed=1
    ),
    "killed beside the kernel's victims": Death(
        "SIGKILL, at the same time the kernel killed a process for lack of memory", signal(KILL), killed=1,
        events=[(4, {"event_type": "exit", "subject": "process", "pgid": 77, "pid": 78, **signal(KILL)})],
    ),
    "killed, and others are not told": Death(
        "SIGKILL, at the same time the kernel killed a process for lack of memory",
        signal(KILL) | {"exit_source": "pidfd"}, killed=1,
    ),
    "limit of a control group": Death(
        "SIGKILL by the kernel, its container's limit of 32 MiB was reached", signal(KILL),
        box=box(1, limit=32 * MIB), events=[(3, {"event_type": "container_oom"})],
    ),
    "kill in a container without limit": Death(
        "SIGKILL by the kernel, for lack of memory in its container", signal(KILL),
        box=box(2), events=[(3, {"event_type": "container_oom"})],
    ),
    "broken pipe": Death("SIGPIPE, the kernel's signal to who writes where nobody reads", signal(PIPE)),
    "abort": Death("SIGABRT, core dumped", signal(ABRT, core_dumped=True)),
    "traceback": Death("exit 1", code(1)),
    "full disk": Death(
        "exit 1, 3 s after /scratch had 0 bytes free; it had just written 2.0 GiB", code(1), wrote=2 * GIB,
        rows=[disk(-60, bytes_available=2 * GIB), disk(0, bytes_available=0), disk(20)],
    ),
    "unrelated job beside a full disk": Death(
        "exit 7, at the same time /scratch had 0 bytes free", code(7), wrote=100 * MIB,
        rows=[disk(-60, bytes_available=2 * GIB), disk(0, bytes_available=0), disk(20)],
    ),
    "one that wrote much more than was filled": Death(
        "exit 7, at the same time /data had 0 bytes free", code(7), wrote=30 * GIB,
        rows=[disk(-60, DATA, bytes_available=2 * GIB), disk(0, DATA, bytes_available=0), disk(20, DATA)],
    ),
    "mapped file on a full disk": Death(
        "SIGBUS, 3 s after /scratch had 0 bytes free", signal(BUS), rows=[disk(0, bytes_available=0), disk(20)]
    ),
    "disk full for long": Death("exit 1, at the same time /scratch had 4.0 KiB free, for 73 s by then", code(1),
                                rows=[disk(-70, bytes_available=4096), disk(0, bytes_available=8192), disk(40)]),
    "disk full just after": Death("exit 1, at the same time /scratch had 0 bytes free", code(1),
                                  rows=[disk(10, bytes_available=0), disk(40)]),
    "success beside a full disk": Death("exit 0", code(0), rows=[disk(0, bytes_available=0), disk(40)]),
    "asked to go beside a full disk": Death("SIGTERM, sender unknown", signal(TERM),
                                            rows=[disk(0, bytes_available=0), disk(40)]),
    "no inodes": Death("exit 1, at the same time /scratch had 0 inodes free", code(1),
                       rows=[disk(0, inodes_available=0), disk(40)]),
    "read-only": Death("exit 1, at the same time /scratch turned read-only", code(1),
                       rows=[disk(0, read_only=True), disk(20)]),
    "read-only for long": Death("exit 1, at the same time /scratch was read-only, for 73 s by then", code(1),
                                rows=[disk(-70, read_only=True), disk(40)]),
    "quota of a container": Death(
        "exit 28, at the same time /var/lib/box/merged had 0 bytes free", code(28), box=box(3),
        rows=[disk(-20, OVERLAY), disk(0, OVERLAY, bytes_available=0), disk(40, OVERLAY)],
    ),
    "limit of processes": Death(
        "exit 254, as its container's limit of 32 processes was reached", code(254),
        box=box(4, processes_limit=32),
    ),
    "limit of file size": Death("SIGXFSZ, the kernel's signal at a limit of file size, core dumped",
                                signal(XFSZ, core_dumped=True)),
    "timeout": Death("exit 124, which timeout(1) gives when the time is up", code(124, program="timeout"),
                     command="timeout 5 ./x"),
    "shell's word for a signal": Death("exit 137, which stands for SIGKILL", code(137)),
    "member killed": Death(
        "exit 1, 1 s after cc1 in it ended: SIGKILL, sender unknown", code(1, program="make"), command="make -j",
        events=[(2, {"event_type": "exit", "subject": "process", "program": "cc1", "pid": 5, **signal(KILL)})],
    ),
    "nameless member killed": Death(
        "exit 2, 1 s after a child of make in it ended: SIGSEGV", code(2, program="make"), command="make -j",
        events=[(2, {"event_type": "exit", "subject": "process", "started_by": "make", "pid": 5, **signal(SEGV)})],
    ),
    "leader first": Death(
        "exit 0; its last member ended 40 s later: exit 3", code(0),
        events=[(43, {"event_type": "exit", "subject": "job", **code(3)})],
    ),
    "kernel that does not tell": Death("not known: this kernel does not tell", {"exit_code": None}),
    "reason given": Death("not known: the events were lost", {"detail": "the events were lost"}),
    "limit, and no status": Death(
        "not known: how it ended was not recorded; it ended as the kernel killed a process in its container: "
        "its container's limit of 1.0 GiB was reached", box=box(5, limit=GIB),
        events=[(3, {"event_type": "container_oom"})],
    ),
    "nothing": Death("not known: how it ended was not recorded"),
    # Last, because a notice holds for half an hour.
    "reclaimed": Death("SIGTERM, at the reclaim notice of 09:03 UTC", signal(TERM),
                       events=[(-9, {"event_type": "teardown_notice"})]),
    "crash after the notice": Death("SIGSEGV", signal(SEGV)),
    "reclaimed later": Death("SIGTERM, 4 min after the reclaim notice of 09:03 UTC", signal(TERM)),
    "full disk that the next sample found": Death(
        "exit 1, as /scratch had 0 bytes free; it had just written 2.0 GiB", code(1), wrote=2 * GIB,
        rows=[disk(-60, bytes_available=2 * GIB), disk(10, bytes_available=0), disk(40)],
    ),
}  # fmt: skip


def places() -> dict[str, tuple[int, float]]:
    """The process group of each death, and the second of its last sample."""
    return {name: (1000 + number, 100.0 * number) for number, name in enumerate(DEATHS, start=1)}


def _events(name: str) -> Iterator[tuple[float, EventRow]]:
    death, (pgid, last) = DEATHS[name], places()[name]
    about = {"container_id": death.box.container_id} if death.box else {}
    told = (
        [(3.0, {"event_type": "exit", "subject": "job", "runtime": round(last * 1e9), **death.told})]
        if death.told
        else []
    )
    for at, values in [*death.events, *told]:
        row = {"pgid": pgid, "happened": START + timedelta(seconds=last + at), **values}
        if row.get("subject") == "job":
            row["start_ticks"] = 100_000
        if row["event_type"].startswith("container") or row["event_type"] == "teardown_notice":
            row = {**about, **{key: value for key, value in row.items() if key != "pgid"}}
        yield last + at, EventRow(**row)


def _in_the_last_minute(wrote: float, last: float) -> Curve:
    return lambda second: wrote / 60 if last - 60 < second <= last else 0.0


def make_deaths(root: Path) -> Path:
    """Records all of them on one machine."""
    machine = Machine(interval=10)
    for name, (pgid, last) in places().items():
        death = DEATHS[name]
        end = last + 40 if name == "leader first" else last
        box_of = death.box and death.box.container_id
        memory = 31 * MIB if death.box and death.box.limit == 32 * MIB else 1000 * MIB
        machine.loads.append(Load(pgid, death.command, begin=0, end=end, container=box_of, memory=memory,
                                  write=_in_the_last_minute(death.wrote, last)))  # fmt: skip
        machine.events += _events(name)
        machine.more += [(last + at, kind, row) for at, kind, row in death.rows]
        machine.kills += (last + 3,) * death.killed
        if death.box:
            # Containers outlive what they end, so that their counters are seen.
            machine.boxes.append(death.box)
            death.box.refused_at = last + 3 if death.box.processes_limit else None
            machine.loads.append(Load(pgid + 5000, "sleep inf", begin=0, container=box_of, memory=MIB))
    machine.more.append(disk(0))
    return machine.record(root, 100 * len(DEATHS) + 200)
