"""A recorder in one mode, through the product's own surface: its command, its archive's reader, its views."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import vmsonar_inspect
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import JobInfoRow, JobRow

from tests.accuracy.modes import Mode
from tests.accuracy.workloads import NOBODY
from tests.real import stranger
from tests.real.wait import wait_until
from vmsonar.host.clock import node_offset

Key = tuple[int, int]
#: Seconds for which a recorder that was ended stays away.
ABSENCE = 3.0


class Recorder:
    """A daemon, or a cron job, that writes one archive."""

    def __init__(self, mode: Mode, place: Path, socket: Path) -> None:
        self.mode = mode
        self.archive = place / mode.name / "archive"
        self.log = place / mode.name / "log"
        self._config = place / mode.name / "config.yaml"
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self._cron: threading.Thread | None = None
        self.archive.parent.mkdir(parents=True)
        self._config.write_text(mode.config(socket))
        if not mode.as_root:
            os.chown(self.archive.parent, NOBODY, NOBODY)

    def start(self) -> None:
        if self.mode.life == "cron":
            self._cron = threading.Thread(target=self._sample_now_and_then, daemon=True)
            self._cron.start()
        else:
            self._process = self._run("daemon", "--interval", f"{self.mode.interval}s")

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        options = ["--archive", str(self.archive), "--config", str(self._config)]
        user: dict[str, Any] = (
            {} if self.mode.as_root else {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
        )
        with self.log.open("ab") as log:
            return subprocess.Popen(
                stranger.vmsonar(*words, *options), env=stranger.environment(), cwd="/", stderr=log,
                stdout=subprocess.DEVNULL, process_group=0, **user,
            )  # fmt: skip

    def _sample_now_and_then(self) -> None:
        while not self._over.is_set():
            self._run("sample").wait(60)
            self._over.wait(self.mode.interval)

    def is_recording(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"{self.mode.name} ended: {self.log.read_text()[-2000:]}")
        return any(path.stat().st_size for path in self.archive.glob("*/*/*/sample-*"))

    def interrupt(self) -> None:
        """Ends it as its mode says, and starts it again a little later; in a thread of its own."""
        number = {"sigterm": signal.SIGTERM, "sigkill": signal.SIGKILL}.get(self.mode.life)
        if number is not None and self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            threading.Timer(ABSENCE, self.start).start()

    def stop(self) -> None:
        """One more sample, and the end."""
        self._over.set()
        if self._cron is not None:
            self._cron.join()
            self._run("sample").wait(60)
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def finish(self) -> None:
        """Waits for its end."""
        if self._process is not None and self._process.wait(60) != 0:
            raise RuntimeError(f"{self.mode.name}: {self.log.read_text()[-2000:]}")
        for path in [self.archive, *self.archive.rglob("*")]:
            os.chown(path, 0, 0)  # root reads nobody else's archive

    def kill(self) -> None:
        self._over.set()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def await_sample(self) -> None:
        wait_until(self.is_recording, 60, f"the first sample of {self.mode.name}")


@contextmanager
def accounts_companion(socket: Path, wanted: bool) -> Iterator[None]:
    """The companion as its unit runs it: an ordinary user with CAP_NET_ADMIN and nothing else."""
    if not wanted:
        yield
        return
    socket.parent.mkdir()
    os.chown(socket.parent, NOBODY, NOBODY)
    python, *_ = stranger.vmsonar()
    as_unit = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=+net_admin"]
    as_unit += ["--ambient-caps=+net_admin", "--bounding-set=-all,+net_admin"]
    line = [*as_unit, python, "-P", "-m", "vmsonar.companion.accounts", "--listen", str(socket)]
    with subprocess.Popen(line, env=stranger.environment(), cwd="/", process_group=0) as process:
        try:
            wait_until(lambda: socket.exists() or process.poll() is not None, 30, "the accounts companion")
            yield
            assert process.poll() is None, "the accounts companion ended"
        finally:
            process.kill()


@dataclass
class Recorded:
    """What one archive says of jobs, users and the machine."""

    mode: Mode
    #: Boot time of every sample and how long it took, in nanoseconds, and the run of the recorder that made it.
    times: list[int] = field(default_factory=list)
    walls: list[int] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    rows: dict[Key, list[JobRow]] = field(default_factory=dict)
    infos: dict[Key, JobInfoRow] = field(default_factory=dict)
    usage: dict[Key, dict[str, Any]] = field(default_factory=dict)
    #: What the views say of each user id.
    users: dict[int | None, dict[str, Any]] = field(default_factory=dict)

    def saw(self, begun: int, ended: int) -> bool:
        """Whether a sample was taken from its first to its last look within that time."""
        return any(begun <= first and last <= ended for first, last in self.taken())

    def taken(self) -> list[tuple[int, int]]:
        """Between which moments each sample was taken: a busy machine needs a while for all processes."""
        return [(moment, moment + wall) for moment, wall in zip(self.times, self.walls, strict=True)]

    def was_away(self, begun: int, ended: int) -> bool:
        """Whether a recorder that was interrupted was not there for a part of that time."""
        moments = pairwise(zip(self.times, self.runs, strict=False))
        gaps = [(one, other) for (one, run), (other, another) in moments if run != another]
        is_interrupted = self.mode.life in ("sigterm", "sigkill")
        return is_interrupted and any(begun < other and ended > one for one, other in gaps)


def read_back(recorder: Recorder) -> Recorded:
    """Reads an archive with the reader, for its rows, and with the views, for what people are shown."""
    found = Recorded(recorder.mode)
    with open_archive(recorder.archive) as archive:
        for sample in archive.samples():
            found.times.append(sample.boottime)
            found.walls.append(max((row.wall_time or 0 for row in sample.cost), default=0))
            found.runs.append(sample.run)
            for row in sample.job:
                found.rows.setdefault((row.pgid, row.start_ticks), []).append(row)
            for info in sample.job_info:
                found.infos[info.pgid, info.start_ticks] = info
    with vmsonar_inspect.open_tables([recorder.archive], cache=False) as tables:
        for line in tables.arrow("SELECT * FROM job_usage").to_pylist():
            found.usage[line["pgid"], line["start_ticks"]] = line
        for line in tables.arrow("SELECT * FROM user_usage").to_pylist():
            found.users[line["user_id"]] = line
    return found


def tick_phase(archive: Path, interval: int) -> int:
    """Nanoseconds by which the ticks of this node follow the multiples of an interval in seconds."""
    machine_id = json.loads((archive / "archive.json").read_text())["machine_id"]
    return node_offset(machine_id, interval * 10**9)
