"""Real workloads, recorded by the real daemon, get the verdicts of the default rules."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from vmsonar_inspect.advice.rules import load_rules
from vmsonar_inspect.facts.model import Advice, Verdict
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.collectors.gpu.scenarios import DRIVER, gpu
from tests.daemon.running import daemon, samples, stop, wait_for
from tests.inspect import workloads
from tests.inspect.workloads import prefer, python, running
from tests.nvml_stub.build import build
from tests.parts import DOCKER_SOCKET, requires
from tests.real.docker import DockerEngine
from tests.real.wait import let_pass
from vmsonar.collectors.registry import COLLECTORS

pytestmark = [requires("docker", "gcc", "root"), pytest.mark.alone]

USED = ("process", "node", "disk", "pressure", "container", "gpu")
ENTRIES = tuple(
    f'Entry("{one.name}", "{one.module}", "{one.make}")' for one in COLLECTORS if one.name in USED
)
INTERVAL = 0.5
#: Samples of each workload: more than the rules ask for.
SAMPLES = 15
#: The one thing that differs from the default: how long something must have been seen. Thresholds are untouched.
RULES = "thin: {seconds: 5}\n"

MIB = 2**20
LIMIT = 96


class Found:
    """The verdicts of a recording, by what they are about."""

    def __init__(self, archive: Path, folder: Path, groups: dict[str, int], boxes: dict[str, str]) -> None:
        override = folder / "rules.yaml"
        override.write_text(RULES)
        self.names = {str(pgid): name for name, pgid in groups.items()}
        self.boxes = {container: name for name, container in boxes.items()}
        self.verdicts: dict[str, list[Verdict]] = {name: [] for name in (*groups, *boxes)}
        self.advice: dict[str, Advice] = {}
        with opened([archive], InspectionSettings(rules=load_rules(override))) as inspection:
            machine, *advices = inspection.advice(next(iter(inspection.sources)))
            jobs = {job.series_id: job for job in inspection.jobs}
        self.machine = machine
        for verdict in machine.verdicts:
            if verdict.about == "container" and verdict.subject in self.boxes:
                self.verdicts[self.boxes[verdict.subject]].append(verdict)
        for advice in advices:
            job = jobs[advice.subject]
            name = self.boxes.get(job.container_id or "") or self.names.get(str(job.pgid))
            if name is not None:
                self.verdicts[name] += advice.verdicts
                self.advice[name] = advice

    def rules(self, name: str) -> set[str]:
        return {verdict.rule for verdict in self.verdicts[name]}

    def told(self, name: str) -> str:
        """What was seen, for a test that fails."""
        return f"{self.verdicts[name]} {self.advice.get(name)}"


def seen(archive: Path, more: int = SAMPLES) -> None:
    """Waits for so many further samples."""
    wanted = len(samples(archive)) + more
    let_pass(more * INTERVAL)
    wait_for(lambda: len(samples(archive)) >= wanted, seconds=90)


def sysfs(folder: Path) -> Path:
    """This machine's sysfs, with an NVIDIA driver that is loaded."""
    root = folder / "sys"
    (root / "module/nvidia").mkdir(parents=True)
    (root / "module/nvidia/initstate").write_text("live\n")
    for place in Path("/sys").iterdir():
        if place.name != "module":
            (root / place.name).symlink_to(place)
    return root


class Place:
    """A daemon that records everything here, with a GPU that only the stub knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.library = build(folder / "nvml")
        self.scenario = folder / "scenario"
        config = folder / "config.yaml"
        config.write_text(
            f"sysfs: {sysfs(folder)}\ncontainers: {{engine: docker, socket: {DOCKER_SOCKET}}}\n"
        )
        self.options = (f"--interval={INTERVAL * 1000:.0f}ms", f"--config={config}")
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library.parent),
            "NVML_STUB_SCENARIO": str(self.scenario),
        }

    def reserve(self, pid: int) -> None:
        """From now on this process holds half of an idle GPU."""
        idle = gpu(0, "util 0 0", f"compute {pid} {20 * 2**30}", without=("util",))
        self.scenario.write_text(DRIVER + idle)

    def daemon(self) -> Iterator[None]:
        with daemon(
            self.archive, *self.options, entries=ENTRIES, env=self.environment, start_new_session=True
        ) as process:
            prefer(process.pid)
            yield
            stop(process)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine) -> Found:
    """One recording; workloads that need the same cores come one after the other."""
    place = Place(tmp_path_factory.mktemp("real"))
    folder, groups, boxes = place.folder, {}, {}
    workloads.write_cold(folder / "cold", LIMIT * MIB * 2 // 3)
    limited = ("--memory", f"{LIMIT}m", "--memory-swap", f"{LIMIT}m", "--network", "none")
    workloads.compiled(workloads.HOG, folder / "join")
    with ExitStack() as stack:
        stack.callback(lambda: docker_engine.remove(*boxes.values()))
        groups |= stack.enter_context(running(reservation=python(workloads.SLEEP)))
        place.reserve(groups["reservation"])
        recording = place.daemon()
        next(recording)
        boxes["killed"] = docker_engine.start("sh", "-c", "sleep 5; tail /dev/zero; true", options=limited)
        with running(serial=python(workloads.SPIN), ranks=python(workloads.RANKS)) as started:
            groups |= started
            seen(place.archive)
        with running(crowd=python(workloads.CROWD)) as started:
            groups |= started
            # Longer: its start, which is slow on a loaded machine, counts in its mean.
            seen(place.archive, 2 * SAMPLES)
        with running(even=python(workloads.EVEN)) as started:
            groups |= started
            seen(place.archive)
        os.sync()  # What others have yet to write would be more than what this one writes.
        with running(hurried=True, writes=python(workloads.WRITES, folder / "hot")) as started:
            groups |= started
            seen(place.archive)
        # A group is there until its last member is reaped: what is read next is not its.
        seen(place.archive, 8)
        boxes["hog"] = docker_engine.start(
            "/data/join",
            "/data/cold",
            str(LIMIT * MIB // 2),
            options=(*limited, "--volume", f"{folder}:/data:ro"),
        )
        with running(forks=workloads.FORKS) as started:
            groups |= started
            seen(place.archive)
        next(recording, None)
    return Found(place.archive, folder, groups, boxes)


#: What must be said of each, and what else may be: a loaded machine can add to a busy job, never to a quiet one.
TRUTH: dict[str, tuple[set[str], set[str]]] = {
    # Two cores are the smallest machine that most clouds offer.
    "serial": ({"serial"} if (os.cpu_count() or 1) >= 4 else set(), set()),
    "crowd": ({"more_threads_than_cores"}, {"hogging"}),
    "ranks": ({"imbalanced"}, set()),
    "writes": ({"io_bound"}, set()),
    "hog": (
        {"job_thrashing_at_limit", "container_limit_near"},
        {"io_bound", "more_threads_than_cores", "hogging", "starved"},
    ),
    "killed": ({"container_out_of_memory", "job_out_of_memory"}, {"starved"}),
    "reservation": ({"gpu_reserved_idle"}, set()),
    "even": (set(), set()),
}


@pytest.mark.parametrize("workload", TRUTH)
def test_a_real_workload_gets_its_verdict_and_no_other(workload: str, found: Found) -> None:
    must, may = TRUTH[workload]
    rules = found.rules(workload)
    assert must <= rules <= must | may, found.told(workload)


def test_a_shell_that_forks_is_named_and_so_is_the_machine(found: Found) -> None:
    # Where the kernel tells of every birth they are counted; elsewhere their CPU time gives them away.
    assert len(found.rules("forks") & {"churn", "short_lived"}) == 1, found.told("forks")
    assert "fork_churn" in {verdict.rule for verdict in found.machine.verdicts}


def test_a_container_at_its_limit_is_not_the_machine_out_of_memory(found: Found) -> None:
    assert "out_of_memory" not in {verdict.rule for verdict in found.machine.verdicts}


def test_every_verdict_carries_its_figures(found: Found) -> None:
    verdicts = [verdict for each in found.verdicts.values() for verdict in each]
    assert all(verdict.figures and verdict.says and verdict.conditions for verdict in verdicts)
    assert {verdict.confidence for verdict in verdicts} <= {"low", "medium", "high"}
