"""Lives between two samples, as an unprivileged recorder tells of them, against the sums of their parent groups.

Each workload has a parent group of its own. The kernel keeps in it what every life below it has used.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import docker  # noqa: F401 - loaded before the children give up the right to read it
import pytest
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import NodeRow, SysInfo
from vmsonar_inspect.inspection import Inspection, InspectionSettings
from vmsonar_inspect.tables.database import Tables, open_tables

from tests.accuracy.containers import FIGURES
from tests.collectors.container.as_user import accounts, running_as
from tests.collectors.container.recording import Recording
from tests.collectors.container.ticks import tick_of
from tests.making.archives import open_writer, utc_now
from tests.parts import DOCKER_SOCKET, requires
from tests.real.docker import DOCKER, IMAGE, DockerEngine
from tests.real.wait import let_pass, wait_until
from vmsonar.companion import __main__ as companion

pytestmark = requires("docker", "root")
MIB = 2**20
BURN = "timeout {} sh -c 'while :; do :; done'"
CGROUPS = Path("/sys/fs/cgroup")


@dataclass
class Record:
    """What was recorded, and what is true."""

    tables: Tables
    #: CPU seconds by name, from the parent group; and how often each was started.
    cpu: dict[str, float]
    starts: dict[str, int]

    def rows(self, query: str) -> list[dict[str, object]]:
        return list(self.tables.arrow(query).to_pylist())

    def one(self, table: str, name: str) -> dict[str, object]:
        (row,) = self.rows(f"SELECT * FROM {table} WHERE name = '{name}'")
        return row


def parent_of(name: str) -> str:
    return f"/vmslives-{name}"


def used(name: str) -> float:
    """CPU seconds of everything that ever ran below a parent group."""
    v1 = CGROUPS / "cpuacct" / parent_of(name)[1:] / "cpuacct.usage"
    if v1.exists():
        return int(v1.read_text()) / 1e9
    stat = (CGROUPS / parent_of(name)[1:] / "cpu.stat").read_text().split()
    return int(stat[stat.index("usage_usec") + 1]) / 1e6


class Workloads:
    """Containers with names of this run."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._token = secrets.token_hex(3)
        self.starts: dict[str, int] = {}

    def name(self, kind: str) -> str:
        return f"{kind}-{self._token}"

    def run(self, kind: str, *command: str, options: tuple[str, ...]) -> str:
        name = self.name(kind)
        parent = ("--cgroup-parent", parent_of(name), "--network", "none", "--label", self._engine.label)
        line = [DOCKER, "run", "--name", name, *parent, *options, IMAGE, *command]
        subprocess.run(line, capture_output=True, check=False, timeout=120)
        return name

    def crash_loop(self) -> None:
        """Lives of one second, each begun by the engine's own restart policy."""
        name = self.run(
            "loop", "sh", "-c", f"{BURN.format(1)}; exit 3", options=("--detach", "--restart", "always")
        )
        wait_until(lambda: self._restarts(name) >= 5, 120, "five restarts")
        self._engine.docker("update", "--restart", "no", name)
        self._engine.docker("wait", name, timeout=120)
        self.starts[name] = self._restarts(name) + 1

    def restart(self) -> None:
        """One restart within an interval, and work that `docker exec` brings in."""
        name = self.run("again", "sh", "-c", BURN.format(30), options=("--detach",))
        let_pass(1.5)
        self._engine.docker("restart", "--time", "0", name)
        self._engine.docker("exec", name, "sh", "-c", f"{BURN.format(1)}; true")
        self._engine.docker("kill", name)
        self.starts[name] = 2

    def short_lives(self) -> None:
        """Containers that are gone at once, and one that is killed at its limit within a second."""
        for kind, command in (("blink", "true"), ("nap", "sleep 0.6")):
            self.starts[self.run(kind, "sh", "-c", command, options=("--rm",))] = 1
        hungry = "sleep 0.3; head -c 200000000 /dev/zero | tail -c 200000000"
        limited = ("--rm", "-m", "60m", "--memory-swap", "60m")
        self.starts[self.run("hungry", "sh", "-c", hungry, options=limited)] = 1

    def _restarts(self, name: str) -> int:
        return int(self._engine.docker("inspect", "--format", "{{.RestartCount}}", name))

    def clean(self) -> None:
        for name in self.starts:
            self._engine.remove(name)
            for folder in (CGROUPS, *CGROUPS.iterdir()):
                with suppress(OSError):
                    (folder / parent_of(name)[1:]).rmdir()


def sample_into(path: Path, run: Path, interval: float) -> None:
    """Collects at fixed intervals, a line of JSON per sample."""
    recording = Recording(run, [])
    with path.open("w") as file:
        due = time.monotonic()
        while True:
            tick = tick_of()
            found = recording.collector.collect(tick)
            rows = {kind: [row.decode() for row in told] for kind, told in found.by_kind.items()}
            print(json.dumps([tick.time.timestamp(), tick.boottime, rows]), file=file, flush=True)
            due += interval
            let_pass(max(0.0, due - time.monotonic()))


def archive_of(path: Path, root: Path, interval: float) -> Path:
    """An archive of these samples."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with closing(open_writer(root, now=utc_now)) as writer:
        for number, line in enumerate(path.read_text().splitlines()):
            stamp, boottime, told = json.loads(line)
            moment = utc_now().fromtimestamp(stamp, utc_now().tzinfo)
            if number == 0:
                about = SysInfo(time=moment, seq=0, run="", boot=boot, boottime=boottime)
                about.cpus, about.interval = os.cpu_count(), int(interval * 1000)
                writer.append_sysinfo(about)
            rows = {kind: [row.encode() for row in found] for kind, found in told.items()}
            rows["node"] = [encode_row(NodeRow(cpus_online=os.cpu_count(), memory_total=2**33))]
            writer.append(moment, boot, boottime, rows)
    return root


@pytest.fixture(scope="module", params=[1.0, 10.0], ids=["1s", "10s"])
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine
) -> Iterator[Record]:
    """Everything at once, recorded by two users: one may ask the engine, the other may nothing."""
    folder = Path(f"/tmp/vmslives-{secrets.token_hex(4)}")
    workloads = Workloads(docker_engine)
    try:
        cpu = run_and_record(folder, request.param, workloads)
        root = tmp_path_factory.mktemp("lives") / "archive"
        with open_tables([archive_of(folder / "samples", root, request.param)]) as tables:
            record = Record(tables, cpu, workloads.starts)
            note_figures(record, request.param)
            yield record
    finally:
        workloads.clean()
        shutil.rmtree(folder)


def note_figures(record: Record, interval: float) -> None:
    if FIGURES not in os.environ:
        return
    with Path(os.environ[FIGURES]).open("a") as file:
        for name, truth in record.cpu.items():
            (use,) = record.rows(
                f"SELECT cpu_seconds, cpu_seconds_high FROM container_usage WHERE name = '{name}'"
            )
            lives = len(record.rows(f"SELECT 1 AS one FROM container_lives WHERE name = '{name}'"))
            figures = {"value": use["cpu_seconds"], "high": use["cpu_seconds_high"], "truth": truth}
            about = {"interval": interval, "kind": name.rpartition("-")[0], "lives": lives}
            print(json.dumps({**about, **figures, "starts": record.starts[name]}), file=file)


def run_and_record(folder: Path, interval: float, workloads: Workloads) -> dict[str, float]:
    """The CPU seconds of each workload; what was seen of it is in the file `samples`."""
    (folder / "vmsonar").mkdir(parents=True)
    listening, samples = folder / "vmsonar/engine.sock", folder / "samples"

    def ask() -> None:
        sys.argv = ["engine", "--listen", str(listening), "--socket", str(DOCKER_SOCKET)]
        companion.main()

    with accounts(2) as (asker, sampler):
        # As a unit it would have Group=, the sampler's, and SupplementaryGroups=, the engine's.
        asker = replace(asker, gid=sampler.gid)
        os.chown(folder, sampler.uid, sampler.gid)
        os.chown(folder / "vmsonar", asker.uid, sampler.gid)
        with running_as(asker, [os.stat(DOCKER_SOCKET).st_gid], ask):
            wait_until(listening.exists, 60, "the companion's socket")
            with running_as(sampler, [], lambda: sample_into(samples, folder, interval)):
                wait_until(lambda: samples.exists() and samples.stat().st_size, 30, "a sample")
                let_pass(interval + 2)
                with ThreadPoolExecutor() as pool:
                    work = (workloads.crash_loop, workloads.restart, workloads.short_lives)
                    for done in [pool.submit(each) for each in work]:
                        done.result()
                cpu = {name: used(name) for name in workloads.starts}
                let_pass(interval + 2)
    return cpu


KINDS = ("loop", "again", "blink", "nap", "hungry")


def named(record: Record, kind: str) -> str:
    (name,) = (name for name in record.starts if name.startswith(kind))
    return name


@pytest.mark.parametrize("kind", KINDS)
def test_cpu_time_is_the_kernels(record: Record, kind: str) -> None:
    name = named(record, kind)
    usage, truth = record.one("container_usage", name), record.cpu[name]
    (rates,) = record.rows(f"SELECT SUM(cpu_seconds) AS cpu FROM container_rates WHERE name = '{name}'")
    found = usage["cpu_seconds"] or 0.0
    assert (rates["cpu"] or 0.0) == pytest.approx(found, rel=1e-6)
    # Where a last reading came too late and nobody else can tell, the truth lies between the bounds.
    most = usage["cpu_seconds_high"] or found
    assert found * 0.98 <= truth <= most * 1.02


@pytest.mark.parametrize("kind", KINDS)
def test_no_life_is_missing(record: Record, kind: str) -> None:
    name = named(record, kind)
    lives = record.rows(f"SELECT * FROM container_lives WHERE name = '{name}' ORDER BY start_boottime")
    assert len(lives) == record.starts[name]
    assert all(life["end_boottime"] for life in lives)
    deaths = record.rows(
        "SELECT e.runtime, e.exit_source FROM event AS e JOIN latest_container_info AS i USING (container_id) "
        f"WHERE i.name = '{name}' AND event_type = 'container_die'"
    )
    assert len(deaths) == len(lives)
    assert {death["exit_source"] for death in deaths} == {"engine"}


def test_runtimes_are_lives_not_intervals(record: Record) -> None:
    found = {use.name: use for use in Inspection(record.tables, InspectionSettings()).containers}
    nap, loop = found[named(record, "nap")], found[named(record, "loop")]
    # A loaded machine starts and stops slowly; an interval of ten seconds would show all the same.
    assert 0.5 <= nap.runtime_seconds <= 2.5
    assert record.starts[loop.name] * 0.9 <= loop.runtime_seconds <= record.starts[loop.name] * 2
    assert loop.lives == record.starts[loop.name]
    assert loop.cores.mean == pytest.approx(loop.cpu_seconds / loop.observed_seconds)
    # Nobody was there at the end: that is no sample of zero bytes.
    assert all(use.memory_bytes.mean != 0 for use in found.values())


def test_an_end_at_the_limit_names_the_limit(record: Record) -> None:
    told = Inspection(record.tables, InspectionSettings())
    name = named(record, "hungry")
    (use,) = (use for use in told.containers if use.name == name)
    assert use.memory_limit_bytes == 60 * MIB
    assert use.memory_charged_peak_bytes == pytest.approx(60 * MIB, rel=0.02)
    advice = told.machine_advice(next(iter(told.machines)))
    (verdict,) = (verdict for verdict in advice.verdicts if name in verdict.name)
    times = "1 time" if use.oom_kills == 1 else f"{use.oom_kills} times"
    assert verdict.rule == "container_out_of_memory"
    assert verdict.says == f"{times}: it reached its memory limit of 60 MiB"
    events = [event.what for _, event in told.events if event.subject == name]
    assert "the container reached its memory limit of 60 MiB" in events


def test_most_ends_are_read_in_time(record: Record) -> None:
    """Not all of them: a machine may be too busy. Where we are the group's only watcher, its parent tells the rest."""
    lives = record.rows("SELECT cpu_source FROM container_lives WHERE end_boottime IS NOT NULL")
    exact = [life for life in lives if life["cpu_source"] in ("final", "parent")]
    assert len(exact) >= 0.8 * len(lives)
