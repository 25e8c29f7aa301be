"""Random faults while increments and forwarding run: what was said to be safe is there, exactly.

A schedule is all in its seed: kills, a full disk, I/O errors, stalls and short writes hit the writer and its children,
while an archive is bundled in increments and forwarded. Whatever claims to have brought everything to safety is
checked against what could be read just before.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import BundleOptions, bundle_into_folder
from vmsonar_archive.system.errors import VmsonarError

from tests.daemon.running import ROOT
from tests.faults.saving import Record, Saving, given_twice
from tests.making.archives import check
from tests.real.wait import let_pass
from vmsonar.config.file import read_config
from vmsonar.daemon.log import Log
from vmsonar.daemon.signals import Signals
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.run import Forwarder
from vmsonar.forward.state import is_all_sent

pytestmark = pytest.mark.slow

_PATHS = ("", "", "", " path=journal", " path=sample-", " path=.tmp", " path=sysinfo-")


def rule(draw: random.Random) -> str:
    """One fault; how often it strikes is drawn too."""
    operation = draw.choice(
        ("write", "write", "write", "fsync", "fdatasync", "rename", "open", "ftruncate", "unlink")
    )
    if operation == "write":
        action = draw.choice(("ENOSPC", "EIO", f"SHORT={draw.randrange(1, 200)}", "KILL"))
    elif operation in ("fsync", "fdatasync"):
        action = draw.choice(("EIO", "ENOSPC", f"STALL={draw.uniform(0.1, 0.8):.2f}", "KILL"))
    else:
        action = draw.choice(("ENOSPC", "EIO", "KILL"))
    count = draw.choice(("1", "3", "*"))
    chance = f" chance={draw.uniform(0.05, 1):.2f}" if draw.random() < 0.7 else ""
    return f"{operation} {action} {count} after={draw.randrange(30)}{chance}{draw.choice(_PATHS)}"


class Storm:
    """One schedule."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.saving = Saving(folder, seed)
        self.writer: subprocess.Popen[bytes] | None = None
        #: What was announced: records that were appended by run, and how far each run is durable.
        self.appended: set[Record] = set()
        self.durable: dict[str, int] = {}
        self.seen: set[Record] = set()
        self.claims = 0
        self._bundled: dict[Path, set[Record]] = {}
        self._log = folder / "said"
        self._log.touch()

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self._step()
            self.saving.faults.clear()
            self._end()
        finally:
            self._kill()
            self.saving.close()

    def _step(self) -> None:
        if self.writer is None or self.writer.poll() is not None:
            self._kill()
            self._start()
        match self.draw.choice(
            ("faults", "faults", "faults", "clear", "kill", "increment", "forward", "forward")
        ):
            case "faults":
                self.saving.faults.set(*(rule(self.draw) for _ in range(self.draw.randrange(1, 4))))
            case "clear":
                self.saving.faults.clear()
            case "kill":
                self._kill()
            case "increment":
                self._increment()
            case "forward":
                self._forward()
        let_pass(self.draw.uniform(0, 0.4))
        self._look()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.faults.victim", str(self.saving.archive)]
        with self._log.open("ab") as output:
            self.writer = subprocess.Popen(
                command, cwd=ROOT, env=self.saving.faults.environment(), stdin=subprocess.PIPE, stdout=output
            )
        before, deadline = self._log.stat().st_size, time.monotonic() + 20
        while (
            self._log.stat().st_size == before and self.writer.poll() is None and time.monotonic() < deadline
        ):
            time.sleep(0.01)

    def _kill(self) -> None:
        if self.writer is not None:
            self.writer.kill()
            self.writer.communicate()
            self.writer = None

    def _look(self) -> None:
        """What can be read now must stay; what is announced must be there at the end."""
        self.seen |= set(self.saving.recorded())

    def _announced(self) -> set[Record]:
        for line in self._log.read_bytes().split(b"\n")[:-1]:
            what, run, seq = line.decode().split(" ")
            if what == "a":
                self.appended.add((run, int(seq)))
            else:
                self.durable[run] = max(int(seq), self.durable.get(run, 0))
        return {(run, seq) for run, seq in self.appended if seq <= self.durable.get(run, 0)}

    def _increment(self) -> None:
        before = set(self.saving.recorded())
        try:
            bundled = bundle_into_folder(
                self.saving.archive, self.saving.bundles, BundleOptions(increment=True)
            )
        except (VmsonarError, OSError):
            return
        if bundled.ok and before:
            self.claims += 1
            missing = before - self.bundled()
            assert not missing, f"said to be bundled: {sorted(missing)[:5]} and {len(missing)} in all"

    def _forward(self) -> None:
        before = set(self.saving.recorded())
        if not before:
            return
        config = read_config(self.saving.config)
        forwarder = Forwarder(
            self.saving.archive,
            self.saving.place.state,
            ForwardPlan(config.forward),
            Log("error"),
            Signals(),
            once=True,
            timeout=20,
        )
        try:
            status = forwarder.run()
        except (VmsonarError, OSError):
            return
        if is_all_sent(status) and not status.counts.undeliverable:
            self.claims += 1
            missing = before - self.saving.forwarded()
            assert not missing, f"said to be forwarded: {sorted(missing)[:5]} and {len(missing)} in all"

    def bundled(self) -> set[Record]:
        for path in self.saving.bundles.glob("*.tar"):
            if path not in self._bundled:
                self._bundled[path] = set(self.saving.recorded(path))
        return set().union(*self._bundled.values())

    def _end(self) -> None:
        """The disk is well again: one more start, and everything must be there, once."""
        self._kill()
        self._start()
        assert self.writer is not None
        self.writer.communicate(timeout=60)
        assert self.writer.returncode == 0
        self._forward()
        self._increment()
        recorded = self.saving.recorded()
        kept, announced = set(recorded), self._announced()
        assert not announced - kept, f"durable and gone: {sorted(announced - kept)[:5]}"
        assert not self.seen - kept, f"seen and gone: {sorted(self.seen - kept)[:5]}"
        assert given_twice(recorded) == []
        assert len(recorded) == len(kept), "a record is there twice"
        assert not self.bundled() - kept
        assert not self.saving.forwarded() - kept
        assert kept == self.bundled() == self.saving.forwarded()
        report = check(self.saving.archive)
        assert report.ok, report.findings


@pytest.mark.parametrize("seed", range(5))
def test_a_storm(tmp_path: Path, seed: int) -> None:
    Storm(tmp_path / "storm", seed).run(steps=6)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_storms(tmp_path: Path, seed: int) -> None:
    Storm(tmp_path / "storm", seed).run(steps=9)
