"""Jobs in a guest whose CPU time its kernel knows by control groups, under several recorders at once."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import EventRow, GapRow, JobInfoRow, JobRow, Sample
from vmsonar_inspect.inspection import InspectionSettings
from vmsonar_inspect.inspection import opened as inspected
from vmsonar_inspect.tables.database import open_tables

from tests.accuracy import stage
from tests.lifecycle.conftest import REPOSITORY
from tests.real.machine import Machine

USER = 54321
TICK = 10**4  # microseconds
FOLDER, GROUPS = "/opt/burners", "/sys/fs/cgroup/burners"
# All are children of one shell, and have groups of their own by its job control. The fork, some ticks in this guest, is
# partly the shell's and partly the child's, and has a control group too.
SCRIPT = """
set -m
enter() { echo $BASHPID > $ACTOR_GROUPS/$1/cgroup.procs; }
run() {
    enter fork-$1
    { enter $1; exec $ACTOR "job $1 $2"; } &
    enter shell
}
run sleeper "sleep 12000"
run one "sleep 300 burn 3000"
run two "sleep 1200 burn 3000"
run many "repeat 200 { fork { burn 10 } wait }"
run seven "sleep 400 burn 300 sleep 1500 exit 7"
run killed "burn 60000"
killed=$!
run heavy "touch 48 sleep 4000"
sleep 2.6
kill -KILL $killed
wait
times > $ACTOR_FILES/times
"""
JOBS = ("sleeper", "one", "two", "many", "seven", "killed", "heavy")
#: Bytes that one of them touched.
HEAVY = 48 * 2**20
NAMES = ("start", "shell", *JOBS, *(f"fork-{job}" for job in JOBS))
PLAN = f"job start uid {USER} job shell command {{ bash {FOLDER}/script }}"
#: Whoever is no member yet may move below this group and from one to another.
PREPARE = """
mkdir -p "$2"; for name in $3; do mkdir "$2/$name"; done
chmod 666 "$2"/cgroup.procs "$2"/*/cgroup.procs; : > "$1/log"; : > "$1/times"; chmod 666 "$1/log" "$1/times"
"""
ENVIRONMENT = f"ACTOR={FOLDER}/actor ACTOR_LOG={FOLDER}/log ACTOR_GROUPS={GROUPS} ACTOR_FILES={FOLDER}"
RUN = f"{ENVIRONMENT} exec {FOLDER}/actor '{PLAN}'"


@dataclass
class Job:
    """One process group as it was; CPU time in ticks, and how much more may be its own."""

    pgid: int
    start: int
    cpu: float
    forks: float


def install(machine: Machine, folder: Path) -> None:
    """Puts the program and its script on the disk of a machine that is off."""
    source = Path(stage.__file__).with_name("actor.c")
    subprocess.run(["gcc", "-O1", "-static", "-pthread", "-o", folder / "actor", source], check=True)
    machine.put(f"{FOLDER[1:]}/script", SCRIPT)
    machine.change('cp "$1" "$2"', str(folder / "actor"), f"{FOLDER[1:]}/actor")


def perform(machine: Machine) -> dict[str, Job]:
    """Runs the jobs to their end; returns what the guest's kernel says of them."""
    machine.run("sh", "-euc", PREPARE, "sh", FOLDER, GROUPS, " ".join(NAMES))
    machine.run("systemd-run", "--quiet", "--wait", "--collect", "sh", "-c", RUN)
    print("shell and children by getrusage:", machine.read(f"{FOLDER}/times").split())
    found = {}
    for line in machine.read(f"{FOLDER}/log").splitlines():
        what, name, _, _, *rest = line.split()
        if what == "job":
            forks = _cpu(machine, f"fork-{name}") if name in JOBS else 0.0
            found[name] = Job(int(rest[0]), int(rest[1]), _cpu(machine, name), forks)
    found["shell"].cpu += found.pop("start").cpu  # the same process, before it changed its user
    found["shell"].forks = sum(job.forks for job in found.values())
    return found


def _cpu(machine: Machine, group: str) -> float:
    words = machine.read(f"{GROUPS}/{group}/cpu.stat").split()
    return int(words[words.index("usage_usec") + 1]) / TICK


@dataclass
class Recorder:
    """A unit like the recorder's own, with an archive and a configuration of its own."""

    name: str
    config: str

    @property
    def archive(self) -> str:
        return f"/var/lib/{self.name}"

    def install(self, machine: Machine) -> None:
        """Puts it on the disk of a machine that is off."""
        unit = (REPOSITORY / "cloud-init/units/vmsonar.service").read_text()
        options = f"--archive {self.archive} --config /etc/vmsonar/{self.name}.yaml"
        for old, new in (
            ("-m vmsonar.daemon", f"-m vmsonar.daemon {options}"),
            ("StateDirectory=vmsonar\n", f"StateDirectory={self.name}\n"),
            ("RuntimeDirectory=vmsonar\n", f"RuntimeDirectory={self.name}\n"),
        ):
            assert old in unit
            unit = unit.replace(old, new)
        machine.put(f"etc/vmsonar/{self.name}.yaml", self.config)
        machine.put(f"etc/systemd/system/{self.name}.service", unit)


@dataclass
class Recorded:
    """What a bundle says."""

    rows: dict[int, list[JobRow]] = field(default_factory=dict)
    infos: dict[int, JobInfoRow] = field(default_factory=dict)
    exits: list[EventRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    #: What the views say of the user and of each process group.
    user: dict[str, Any] = field(default_factory=dict)
    usage: dict[int, dict[str, Any]] = field(default_factory=dict)

    def last(self, pgid: int) -> JobRow:
        return self.rows[pgid][-1]


def read(bundle: Path) -> Recorded:
    found = Recorded()
    with open_archive(bundle) as opened:
        for sample in opened.samples():
            _take(sample, found)
    with open_tables([bundle], cache=False) as tables:
        (found.user,) = tables.arrow(f"SELECT * FROM user_usage WHERE user_id = {USER}").to_pylist()
        lines = tables.arrow("SELECT * FROM job_usage").to_pylist()
    found.usage = {line["pgid"]: line for line in lines}
    return found


def sentences(bundle: Path) -> dict[int, str]:
    """How each job ended, by its process group."""
    with inspected([bundle], InspectionSettings()) as found:
        return {job.pgid: job.ending.words or "" for job in found.jobs if job.pgid is not None}


def _take(sample: Sample, found: Recorded) -> None:
    for row in sample.job:
        found.rows.setdefault(row.pgid, []).append(row)
    found.infos.update({info.pgid: info for info in sample.job_info})
    found.exits += [event for event in sample.event if event.event_type == "exit"]
    found.gaps += sample.gap
