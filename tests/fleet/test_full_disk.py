"""A disk that is really full: nothing is acknowledged that is not on it, and all of it comes in when there is room."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import VmsonarError

from tests.fleet.messages import Given, messages
from tests.fleet.place import Vm, assert_same
from tests.parts import requires
from vmsonar.config.quantities import Duration
from vmsonar.config.shipping import CollectKafka, Tls
from vmsonar.fleet.intake import Intake, Receipt
from vmsonar.fleet.kafka import KafkaSource
from vmsonar.fleet.sources import FolderSource, Source
from vmsonar.fleet.store import Fleet, open_fleet

pytestmark = requires("tmpfs_mount")

_ROOMS = (0, 20_000, 70_000, 90_000, 120_000, 160_000, 250_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes, with a fleet."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.fixture
def fleet(disk: Path) -> Fleet:
    return open_fleet(disk / "fleet", create=True)


def leave(disk: Path, room: int) -> None:
    """Fills the disk but for so many bytes."""
    hog = disk / "hog"
    hog.unlink(missing_ok=True)
    free = os.statvfs(disk)
    hog.write_bytes(b"\xff" * max(0, free.f_bavail * free.f_frsize - room))


def taken(source: Source | KafkaSource) -> tuple[list[Receipt], bool]:
    """What came in, and whether the disk was full before all was in."""
    found: list[Receipt] = []
    try:
        for receipt in source.round():
            found.append(receipt)
    except (OSError, VmsonarError):
        return found, True
    return found, False


def test_a_folder(disk: Path, tmp_path: Path, vm: Vm, fleet: Fleet) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in range(12):
        vm.record(40)
        vm.increment().rename(inbox / f"{number}.tar")
    source, full = FolderSource(inbox, Intake(fleet), keep=False), 0
    for room in _ROOMS:
        leave(disk, room)
        before = len(list(inbox.iterdir()))
        found, is_full = taken(source)
        full += is_full
        assert [receipt.accepted for receipt in found] == [True] * (before - len(list(inbox.iterdir())))
    assert full >= 4
    (disk / "hog").unlink()
    assert not taken(source)[1]
    assert list(inbox.iterdir()) == []
    assert_same(fleet, [vm])


class Partition:
    """A partition as a consumer sees it: from what was committed last, again and again."""

    def __init__(self, given: list[Given]) -> None:
        self._given = given
        self.committed = self._next = 0

    def open(self) -> "Partition":
        self._next = self.committed
        return self

    def consume(self, *_: object) -> list[Given]:
        found = self._given[self._next : self._next + 20]
        self._next += len(found)
        return found

    def commit(self, offsets: list[Given], **_: object) -> None:
        self.committed = max(int(one.offset) for one in offsets)  # type: ignore[call-overload]

    def close(self) -> None:
        pass


@requires("kafka")
def test_kafka(disk: Path, vm: Vm, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    vm.record(200)
    vm.stop()
    sent = sorted(messages(vm.root), key=lambda message: message[1].seq)
    given = [Given(*message, number) for number, message in enumerate(sent)]
    partition = Partition(given)
    settings = CollectKafka(brokers=["none:1"], tls=Tls(use="none"), every=Duration(0.001))
    source, full = KafkaSource(settings, Intake(fleet)), 0
    monkeypatch.setattr(source, "_open", lambda: setattr(source, "_consumer", partition.open()))
    for room in _ROOMS:
        leave(disk, room)
        before = partition.committed
        found, is_full = taken(source)
        full += is_full
        filed = sum(receipt.records + receipt.repeats for receipt in found if receipt.accepted)
        assert filed >= partition.committed - before
        assert partition.committed == before or not is_full
    assert full >= 3
    (disk / "hog").unlink()
    assert not taken(source)[1]
    assert partition.committed == len(given)
    assert_same(fleet, [vm])
