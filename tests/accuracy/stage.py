"""One performance: every workload side by side, under one recorder per mode, and all figures held against the truth."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.accuracy.compare import FIRST_UID, Cell, Comparison, compare_machine
from tests.accuracy.modes import Mode
from tests.accuracy.oracle import ControlGroups, Meter
from tests.accuracy.recording import Recorder, accounts_companion, read_back, tick_phase
from tests.accuracy.truth import Truth, read_truth
from tests.accuracy.workloads import NOBODY, Workload
from tests.real.wait import let_pass

#: Seconds after which a recorder that is to be interrupted is ended.
INTERRUPTION = 12.0
_LONGEST = 600.0
_INPUT = 64 * 2**20
_HUGE = Path("/proc/sys/vm/nr_hugepages")
_HUGE_COUNT = 40


@dataclass
class _Act:
    """A workload on stage."""

    workload: Workload
    folder: Path
    log: Path
    groups: Path
    uid: int
    process: subprocess.Popen[bytes] | None = None
    ended: int = 0
    #: Until when its control groups had processes, of jobs with much memory: it is freed after the last words.
    gone: dict[str, int] = field(default_factory=dict)

    def is_over(self) -> bool:
        return self.ended > 0


@dataclass
class Performance:
    """What came out of one performance."""

    cells: list[Cell]
    truths: dict[str, Truth]
    seconds: float
    #: Workloads that failed, and why: then nothing is said of their figures.
    failed: dict[str, str] = field(default_factory=dict)


class Stage:
    """Folders, control groups and the compiled actor, for the time of one performance."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.memory = Path(tempfile.mkdtemp(prefix="accuracy-", dir="/dev/shm"))
        self.groups = ControlGroups()
        self.actor = place / "actor"
        self._uid = FIRST_UID + 1000 * (os.getpid() % 100_000)  # two performances at once share no user
        place.chmod(0o755)
        self.memory.chmod(0o755)
        source = Path(__file__).with_name("actor.c")
        subprocess.run(["gcc", "-O1", "-pthread", "-o", self.actor, source], check=True)

    def prepare(self, workload: Workload) -> _Act:
        folder = self.place / workload.name
        folder.mkdir()
        uid = 0 if workload.as_root else NOBODY if workload.as_recorder else self._next_uid()
        prepared = workload.prepare(folder) if workload.prepare else ""
        if " read " in workload.plan:
            (folder / "input").write_bytes(os.urandom(_INPUT))
        for path in [folder, *folder.iterdir()]:
            os.chown(path, uid, uid)
        log = self.memory / workload.name
        log.touch()
        log.chmod(0o666)
        return _Act(workload, folder, log, self.groups.make(workload.name, workload.accounts(prepared)), uid)

    def _next_uid(self) -> int:
        self._uid += 1
        return self._uid

    def begin(self, act: _Act, phases: dict[str, str]) -> None:
        environment = {
            "PATH": os.environ["PATH"], "ACTOR": str(self.actor), "ACTOR_LOG": str(act.log),
            "ACTOR_GROUPS": str(act.groups), "ACTOR_FILES": str(act.folder), **phases,
        }  # fmt: skip
        plan = act.workload.plan.replace("{files}", str(act.folder))
        for name in ("{user}", "{another}"):
            plan = plan.replace(name, str(self._next_uid())) if name in plan else plan
        account = act.groups / act.workload.accounts("")[0] / "cgroup.procs"
        with (act.folder / "errors").open("wb") as errors, account.open("wb", buffering=0) as procs:
            act.process = subprocess.Popen(
                ["nice", "-n", str(act.workload.nice), self.actor, plan], env=environment, user=act.uid,
                group=act.uid, extra_groups=(), process_group=0,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, cwd="/",
                preexec_fn=lambda: procs.write(b"0"),  # what it uses to start is its own
            )  # fmt: skip

    def close(self) -> None:
        self.groups.remove()
        shutil.rmtree(self.memory)


def perform(
    workloads: Sequence[Workload], modes: Sequence[Mode], *, tail: float = 3.0, keep: Path | None = None
) -> Performance:
    """Runs all of it; the recorders see everything from before the first birth to after the last death."""
    begun = time.monotonic()
    # Not on tmpfs: what is written must reach a disk.
    with tempfile.TemporaryDirectory(prefix="accuracy-", dir="/var/tmp") as place:
        stage = Stage(Path(place))
        socket = stage.place / "companion" / "accounts.sock"
        recorders = [Recorder(mode, stage.place / "recorders", socket) for mode in modes]
        meter = Meter()
        try:
            with (
                huge_pages(any(" huge " in workload.plan for workload in workloads)),
                accounts_companion(socket, any(mode.accounts for mode in modes)),
            ):
                acts = [stage.prepare(workload) for workload in workloads]
                meter.start()
                _record(stage, acts, recorders, tail)
                meter.stop()
            return _outcome(acts, recorders, meter, begun)
        finally:
            if keep is not None:
                shutil.copytree(stage.place / "recorders", keep / "recorders", dirs_exist_ok=True)
                shutil.copytree(stage.memory, keep / "logs", dirs_exist_ok=True)
            for recorder in recorders:
                recorder.kill()
            stage.close()


def _record(stage: Stage, acts: list[_Act], recorders: list[Recorder], tail: float) -> None:
    for recorder in recorders:
        recorder.start()
    for recorder in recorders:
        recorder.await_sample()
    _play(stage, acts, recorders)
    let_pass(tail)
    for recorder in recorders:
        recorder.stop()
    for recorder in recorders:
        recorder.finish()


def _outcome(acts: list[_Act], recorders: list[Recorder], meter: Meter, begun: float) -> Performance:
    truths = {act.workload.name: read_truth(act.log, act.groups, act.ended, act.gone) for act in acts}
    failed = {act.workload.name: fault for act in acts if (fault := _fault(act))}
    fit = [act for act in acts if act.workload.name not in failed]
    cells = list(_compare(fit, truths, recorders, meter))
    return Performance(cells, truths, time.monotonic() - begun, failed)


def _play(stage: Stage, acts: list[_Act], recorders: list[Recorder]) -> None:
    """Starts each act when it is due, and lets them all come to their end."""
    archive = recorders[0].archive
    phases = {f"ACTOR_PHASE_{seconds * 1000}": str(tick_phase(archive, seconds)) for seconds in (1, 10)}
    begun = time.monotonic()
    interrupted = not any(recorder.mode.life != "steady" for recorder in recorders)
    while not all(act.is_over() for act in acts):
        passed = time.monotonic() - begun
        if passed > _LONGEST:
            raise TimeoutError(f"still on stage: {[act.workload.name for act in acts if not act.is_over()]}")
        for act in acts:
            if act.process is None and passed >= act.workload.delay:
                stage.begin(act, phases)
            elif act.process is not None and not act.is_over() and act.process.poll() is not None:
                act.ended = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            for name in act.workload.peaks if act.process else ():
                if (act.groups / name / "cgroup.procs").read_text():
                    act.gone[name] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if not interrupted and passed > INTERRUPTION:
            interrupted = True
            for recorder in recorders:
                recorder.interrupt()
        time.sleep(0.02)
    _await_orphans(stage, acts)


def _await_orphans(stage: Stage, acts: list[_Act]) -> None:
    """Daemons may outlive the one that started them."""
    end = time.monotonic() + 30
    while not all(stage.groups.is_empty(act.workload.name) for act in acts):
        if time.monotonic() > end:
            raise TimeoutError("actors outlive their stage")
        time.sleep(0.1)


def _fault(act: _Act) -> str | None:
    said = (act.folder / "errors").read_text().strip()
    code = act.process.returncode if act.process else None
    return None if code == 0 and "actor " not in said else f"exit {code}: {said[-500:]}"


def _compare(
    acts: list[_Act], truths: dict[str, Truth], recorders: list[Recorder], meter: Meter
) -> Iterator[Cell]:
    for recorder in recorders:
        recorded = read_back(recorder)
        for act in acts:
            yield from Comparison(act.workload, truths[act.workload.name], recorded).cells()
        (first, *_), (*_, last) = recorded.taken(), recorded.taken()
        used = meter.between(first[1], last[0]) / 1e9, meter.between(first[0], last[1]) / 1e9
        yield compare_machine(recorded, used)


@contextmanager
def huge_pages(wanted: bool) -> Iterator[None]:
    """Reserves huge pages for the time being, where the kernel has them; beside others who do the same."""
    if not wanted or not _HUGE.exists():
        yield
        return
    _HUGE.write_text(str(int(_HUGE.read_text()) + _HUGE_COUNT))
    try:
        yield
    finally:
        _HUGE.write_text(str(max(0, int(_HUGE.read_text()) - _HUGE_COUNT)))
