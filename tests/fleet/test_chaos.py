"""Collectors killed at random, shipments twice, out of order, overlapping, half and hostile: the sums stay exact."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fleet import dying
from tests.fleet.place import Machines, Vm, assert_same
from vmsonar.fleet.store import Fleet, open_fleet


@dataclass
class Storm:
    """Collectors over one inbox, and somebody who kills them."""

    folder: Path
    chance: random.Random
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    kills: int = 0

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    @property
    def fleet(self) -> Fleet:
        return open_fleet(self.folder / "collected", create=True)

    def command(self, *options: str) -> list[str]:
        words = ["collect", str(self.inbox), "--fleet", str(self.folder / "collected"), *options]
        return [sys.executable, "-m", "vmsonar", *words]

    def start(self, count: int) -> None:
        self.inbox.mkdir()
        self.running = [self._one() for _ in range(count)]

    def _one(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.command(), stderr=subprocess.DEVNULL)

    def kill_one(self) -> None:
        number = self.chance.randrange(len(self.running))
        self.running[number].send_signal(signal.SIGKILL)
        self.running[number].wait(30)
        self.running[number] = self._one()
        self.kills += 1

    def put(self, name: str, content: bytes, *, settled: bool = False) -> None:
        """As a careful sender does: complete under another name first."""
        partial = self.inbox / f".{name}"
        partial.write_bytes(content)
        if settled:
            os.utime(partial, (0, 0))
        partial.rename(self.inbox / name)

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(30)
        self.running = []


@pytest.fixture
def storm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Storm]:
    made = Storm(tmp_path / "storm", random.Random(20))
    made.folder.mkdir()
    yield made
    made.stop()


def shipments(vms: list[Vm], chance: random.Random, rounds: int) -> Iterator[bytes]:
    """What the machines send, with old shipments again and whole bundles that overlap, in any order."""
    sent: list[bytes] = []
    for number in range(rounds):
        for vm in vms:
            vm.record(chance.randrange(5, 120))
            if chance.random() < 0.1:
                vm.restart()
            made = vm.increment() if chance.random() < 0.7 else vm.bundle(f"{number}.tar")
            sent.append(made.read_bytes())
        chance.shuffle(sent)
        for _ in range(len(vms)):
            yield sent[chance.randrange(len(sent))]
    chance.shuffle(sent)
    yield from sent


def endure(storm: Storm, vms: list[Vm], rounds: int, kills: int, seconds: float) -> None:
    storm.start(2)
    bad = 0
    contents = list(shipments(vms, storm.chance, rounds))
    every = max(1, len(contents) // kills)
    for number, content in enumerate(contents):
        storm.put(f"{number}.tar", content)
        if storm.chance.random() < 0.1:
            cut = storm.chance.randrange(1, len(content) - 1024)
            flipped = bytearray(content)
            flipped[cut] ^= 1 << storm.chance.randrange(8)
            storm.put(f"half-{number}.tar", content[:cut], settled=True)
            storm.put(f"flipped-{number}.tar", bytes(flipped))
            bad += 2
        if number % every == 0:
            let_pass(storm.chance.uniform(0, seconds))
            storm.kill_one()
    while storm.kills < kills:
        let_pass(storm.chance.uniform(0, seconds))
        storm.kill_one()
    storm.stop()
    done = subprocess.run(storm.command("--once"), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert list(storm.inbox.iterdir()) == []
    assert_same(storm.fleet, vms)
    reasons = list(storm.fleet.refused.glob("*.json"))
    # One that was killed between setting aside and removing did it twice at most.
    assert len(reasons) >= bad


def let_pass(seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(left)


@pytest.mark.slow
def test_a_short_storm(storm: Storm, machines: Machines) -> None:
    endure(storm, [machines() for _ in range(3)], rounds=4, kills=6, seconds=1.0)


@pytest.mark.chaos
def test_a_hundred_kills(storm: Storm, machines: Machines) -> None:
    endure(storm, [machines() for _ in range(6)], rounds=12, kills=100, seconds=1.5)


def test_every_point_at_which_it_can_end(tmp_path: Path, vm: Vm) -> None:
    """Killed at each named point in turn; the next one goes on, and the file is still there."""
    vm.record(30)
    first = vm.bundle("first.tar").read_bytes()
    vm.record(400)
    second = vm.bundle("second.tar").read_bytes()
    points = dying.points(tmp_path / "probe", [first, second])
    assert {"deposit.before_journal", "deposit.before_rename", "intake.before_receipt"} <= set(points)
    for number in range(len(points)):
        folder = tmp_path / str(number)
        folder.mkdir()
        fleet = dying.killed_at(folder, [first, second], number)
        assert (folder / "0.tar").exists() or (folder / "1.tar").exists()
        dying.take_rest(folder, fleet)
        assert_same(fleet, [vm])
        shutil.rmtree(folder)
