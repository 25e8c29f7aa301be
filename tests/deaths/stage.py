"""All deaths on one stage, one recorder without rights that watches, and what its archive then says."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import EventRow, Sample

from tests.collectors.filesystem.conftest import mount, private_mounts
from tests.deaths import jobs
from tests.parts import DOCKER_SOCKET
from tests.real import stranger
from tests.real.docker import DockerEngine
from tests.real.wait import let_pass, wait_until

#: Longer than any stage takes; the recorder is stopped before.
_AT_MOST = "180s"
MIB = 1 << 20
#: Of the recorder that has all tests, samples come every second; evidence of another death is out of reach after this.
OFTEN, SELDOM = "1s", "10s"
APART = 4.0
_GROUPS = Path("/sys/fs/cgroup")


@dataclass
class Staged:
    """One job that was run."""

    pid: int
    begun: datetime
    ended: datetime | None = None
    status: int | None = None


@dataclass
class Stage:
    """Where the deaths happen."""

    place: Path
    engine: DockerEngine
    jobs: dict[str, Staged] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    interval: str = OFTEN
    #: What the kernel says of the recorder (proc_pid_status(5)).
    recorder: dict[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        return self.place / self.interval / "archive"

    def has_begun(self) -> bool:
        return any(self.archive.glob("*/*/*/sample-*"))

    def seen(self, interval: str) -> "Stage":
        """The same as another recorder saw it."""
        other = replace(self, interval=interval)
        with open_archive(other.archive) as opened:
            other.samples = list(opened.samples())
        return other

    def exits(self, name: str) -> list[EventRow]:
        """The exits of a job and of its members."""
        job = self.jobs[name]
        return [row for row in self.events("exit") if row.pgid == job.pid and _near(row, job)]

    def events(self, kind: str) -> list[EventRow]:
        return [row for sample in self.samples for row in sample.event if row.event_type == kind]

    def start(self, name: str, command: list[str], **options: object) -> subprocess.Popen[bytes]:
        begun = datetime.now(UTC)
        with (self.place / f"{name}.err").open("wb") as error:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                command, process_group=0, stdin=subprocess.DEVNULL, stderr=error, cwd=self.place,
                **{"stdout": subprocess.DEVNULL, **options},
            )  # type: ignore[call-overload]  # fmt: skip
        self.jobs[name] = Staged(process.pid, begun)
        return process

    def end(self, name: str, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
        process.wait(seconds)
        job = self.jobs[name]
        job.ended, job.status = datetime.now(UTC), process.returncode

    def run(self, name: str, command: list[str]) -> None:
        self.end(name, self.start(name, command))


def _near(row: EventRow, job: Staged) -> bool:
    return (
        row.happened is not None
        and job.begun <= row.happened
        and (job.ended is None or row.happened <= job.ended)
    )


@contextmanager
def recorded(stage: Stage) -> Iterator[None]:
    """Recorders of a user who may ask the engine, and has no other right; one samples at the default interval."""
    with ExitStack() as stack:
        often, seldom = (stack.enter_context(_recorder(stage, interval)) for interval in (OFTEN, SELDOM))
        for interval in (OFTEN, SELDOM):
            wait_until(replace(stage, interval=interval).has_begun, 60, "the first sample")
        let_pass(1.5)
        status = Path(f"/proc/{often.pid}/status").read_text()
        stage.recorder = dict(line.split(":\t", 1) for line in status.splitlines())
        yield
        for process in (often, seldom):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, (stage.place / "recorder.log").read_text()
    for interval in (OFTEN, SELDOM):
        archive = replace(stage, interval=interval).archive
        for path in [archive, *archive.rglob("*")]:
            os.chown(path, 0, 0)  # root reads nobody else's archive
    stage.samples = stage.seen(OFTEN).samples


@contextmanager
def _recorder(stage: Stage, interval: str) -> Iterator[subprocess.Popen[bytes]]:
    archive = replace(stage, interval=interval).archive
    archive.parent.mkdir()
    os.chown(archive.parent, stranger.STRANGER, stranger.STRANGER)
    line = stranger.vmsonar("daemon", "--archive", str(archive), "--interval", interval, "--for", _AT_MOST)
    with (stage.place / "recorder.log").open("ab") as log:
        process = subprocess.Popen(
            line, env=stranger.environment(), cwd="/", stderr=log, stdout=log, process_group=0,
            user=stranger.STRANGER, group=stranger.STRANGER, extra_groups=[os.stat(DOCKER_SOCKET).st_gid],
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def disk(place: Path, inodes: int) -> Iterator[None]:
    """A small ext4 of its own."""
    image = place.with_suffix(".image")
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 16 * MIB)  # else the disk below would fill alike
    subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", "-N", str(inodes), image], check=True)
    place.mkdir()
    mount("-o", "loop", image, place)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)


@contextmanager
def control_group(controller: str, limit: int) -> Iterator[Path]:
    """A control group that is no container, with a limit of memory or tasks."""
    root = _GROUPS / controller if (_GROUPS / controller).is_dir() else _GROUPS
    group = root / f"deaths-{controller}-{os.getpid()}"
    group.mkdir()
    try:
        files = (group / name for name in (f"{controller}.max", f"{controller}.limit_in_bytes"))
        next(path for path in files if path.exists()).write_text(str(limit))
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 10, "the end of all in it")
        group.rmdir()


@contextmanager
def play(engine: DockerEngine) -> Iterator[Stage]:
    """Every death, for real, in about 45 seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deaths-")))
        folder.chmod(0o755)
        stage = Stage(folder, engine)
        stack.callback(lambda: engine.remove(*stage.containers.values()))
        with private_mounts(), ExitStack() as mounts:
            for name, inodes in (("full", 4096), ("crowded", 64), ("frozen", 4096)):
                mounts.enter_context(disk(folder / name, inodes))
            go = stage.place / "go_older"
            older = stage.start("older", ["bash", "-c", f"until [ -e {go} ]; do sleep 0.2; done; exit 6"])
            with recorded(stage):
                go.touch()
                stage.end("older", older)
                with ThreadPoolExecutor(1) as others:
                    started = others.submit(_start_containers, stage)
                    _plain_deaths(stage)
                    started.result()
                _memory_deaths(stage)
                _container_deaths(stage)
                _disk_deaths(stage)
        yield stage


def _plain_deaths(stage: Stage) -> None:
    """Side by side, and waited for as they end; one of them late."""
    for source, copy in (("true", "late"), ("true", "soon"), ("false", "bad")):
        shutil.copy(f"/bin/{source}", stage.place / f"deaths-{copy}")
    reading, writing = os.pipe()
    os.close(reading)
    running = {
        name: stage.start(name, death.command, **({"stdout": writing} if name == "pipe" else {}))
        for name, death in jobs.PLAIN.items()
    }
    os.close(writing)
    running["reuse"] = stage.start("reuse", [*jobs.python(jobs.REUSE)], stdout=subprocess.PIPE)
    running["crowd"] = stage.start("crowd", [*jobs.python(jobs.CROWD), str(stage.place)])
    for name, death in jobs.PLAIN.items():
        if death.sends is not None:
            number, seconds = death.sends
            threading.Timer(seconds, running[name].send_signal, [number]).start()
    reusing = running["reuse"].stdout
    assert reusing is not None
    with reusing:
        reused = int(reusing.readline())
    late = running.pop("late")
    for name, process in running.items():
        stage.end(name, process)
    stage.end("late", late)
    stage.jobs["reused"] = Staged(reused, stage.jobs["reuse"].begun, stage.jobs["reuse"].ended)


def _start_containers(stage: Stage) -> None:
    gate = stage.place / "gate"
    gate.mkdir()
    for name, (script, options) in jobs.IN_CONTAINERS.items():
        more = ("-v", f"{gate}:/gate", "--name", f"{name}-{os.getpid()}", *options)
        stage.containers[name] = stage.engine.start("sh", "-c", script, options=more)


def _memory_deaths(stage: Stage) -> None:
    """The kernel kills in a group that is no container: first alone, then in the same moment as somebody else does."""
    go = [stage.place / "go_alone", stage.place / "go_beside"]
    with control_group("memory", 32 * MIB) as group:
        alone = stage.start("group_memory", [*jobs.python(jobs.HUNGRY), str(group), str(go[0])])
        let_pass(APART)
        go[0].touch()
        stage.end("group_memory", alone)
        beside = stage.start("group_memory_beside", [*jobs.python(jobs.HUNGRY), str(group), str(go[1])])
        victim = stage.start("killed_beside", ["sleep", "60"])
        let_pass(APART)
        go[1].touch()
        stage.end("group_memory_beside", beside)
        victim.kill()
        stage.end("killed_beside", victim)


def _container_deaths(stage: Stage) -> None:
    let_pass(APART)
    (stage.place / "gate" / "go").touch()
    with ThreadPoolExecutor(2) as both:
        both.submit(stage.engine.docker, "stop", "-t", "10", stage.containers["stopped"])
        both.submit(stage.engine.docker, "stop", "-t", "1", stage.containers["stopped_hard"])
    let_pass(APART)  # the kernel has killed a child of its first process long ago
    stage.engine.docker("kill", stage.containers["outlived"])
    for container in stage.containers.values():
        stage.engine.docker("wait", container)


def _disk_deaths(stage: Stage) -> None:
    """One file system after the other runs out, with others beside that have nothing to do with it."""
    let_pass(APART)
    full, crowded, frozen = (stage.place / name for name in ("full", "crowded", "frozen"))
    own = {
        "user": stranger.STRANGER,
        "group": stranger.STRANGER,
    }  # what the recorder's own user writes is known
    os.chown(full, stranger.STRANGER, stranger.STRANGER)
    more = ["bash", "-c", f"sleep 3; exec {_line(jobs.NO_ROOM, full / 'more')}"]
    running = {
        "full": stage.start("full", [stranger.vmsonar()[0], *jobs.python(jobs.PATIENT)[1:], str(full / "hog")], **own),
        "unrelated": stage.start("unrelated", ["bash", "-c", "sleep 3; exit 7"], **own),
        "also_full": stage.start("also_full", more, **own),
        "fine_beside": stage.start("fine_beside", ["bash", "-c", "sleep 3; exit 0"]),
        "asked_beside": stage.start("asked_beside", ["bash", "-c", "sleep 3; kill -TERM $$"]),
    }  # fmt: skip
    for name, process in running.items():
        stage.end(name, process)
    let_pass(1.5)
    (full / "hog").unlink()
    let_pass(APART)
    stage.run("no_inodes", [*jobs.python(jobs.NO_INODES), str(crowded)])
    let_pass(1.5)
    for path in crowded.glob("[0-9]*"):
        path.unlink()
    let_pass(APART)
    writer = stage.start("read_only", [*jobs.python(jobs.JOURNAL), str(frozen / "journal")])
    let_pass(2.5)
    wait_until(lambda: _froze(frozen), 10, "the remount", every=0.01)
    stage.end("read_only", writer)
    let_pass(2.5)


def _line(code: str, path: Path) -> str:
    return f'{stranger.vmsonar()[0]} -S -c "import sys; {code}" {path}'


def _froze(place: Path) -> bool:
    """Whether it is read-only now: refused while somebody has a file open for writing."""
    done = subprocess.run(["mount", "-o", "remount,ro", place], capture_output=True, check=False)
    return done.returncode == 0
