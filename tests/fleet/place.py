"""Machines that record and ship, a fleet that takes them in, and the sums over both."""

import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from vmsonar_archive.bundle.make import bundle_into_folder, bundle_to_file
from vmsonar_archive.bundle.worker import BundleOptions
from vmsonar_archive.format.identity import NodeIdentity, read_identity
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path

from tests.making.bundles import START, fill, open_writer
from vmsonar.fleet.store import Fleet, open_fleet

Sums = dict[str, Counter[str]]


class Machines:
    """Makes machines, and stops those that a test left running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Vm] = []

    def __call__(self) -> "Vm":
        self.made.append(Vm(self.folder, len(self.made)))
        return self.made[-1]

    def stop(self) -> None:
        for vm in self.made:
            vm.stop()


class Vm:
    """A machine with an archive that it writes, and a folder into which it ships."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.root = folder / f"vm{number}"
        self.outbox = folder / f"out{number}"
        self.outbox.mkdir(parents=True)
        self.time = START
        self._node = NodeIdentity(machine_id=f"{number + 1:032x}", hostname_short=f"vm{number}")
        self._writer = open_writer(self.root, node=self._node)
        self._recorded = 0
        self._stopped = False

    @property
    def archive(self) -> str:
        return read_identity(self.root).archive

    def record(self, samples: int, seconds: float = 10.0, processes: int = 3) -> None:
        fill(self._writer, samples, self.time, seconds, self._recorded, processes)
        self._recorded += samples
        self.time += timedelta(seconds=seconds * samples)

    def restart(self) -> None:
        """A new run of the recorder."""
        self.stop()
        self._start()

    def come_back_as(self, earlier: Path) -> None:
        """After a power cut the disk has what it had at an earlier moment."""
        self.stop()
        shutil.rmtree(self.root)
        shutil.copytree(earlier, self.root)
        self._start()

    def _start(self) -> None:
        self._writer = open_writer(self.root, node=self._node, when=self.time)
        self._stopped = False

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            assert self._writer.close()

    def tidy(self) -> None:
        """Recompresses and merges finished hours."""
        self._writer.tidy()

    def increment(self) -> Path:
        """A bundle of what is new since the last one."""
        before = set(self.outbox.iterdir())
        bundle_into_folder(self.root, self.outbox, BundleOptions(increment=True))
        (made,) = set(self.outbox.iterdir()) - before
        return made

    def bundle(self, name: str, **options: object) -> Path:
        """A bundle of all of it."""
        path = self.outbox / name
        bundle_to_file(self.root, path, options=BundleOptions(**options))  # type: ignore[arg-type]
        return path


def begin(folder: Path) -> Fleet:
    return open_fleet(folder / "fleet", create=True)


def sums(roots: Iterable[Path]) -> Sums:
    """Of each archive: how many records it has, and sums over what they counted; repeats count again."""
    found: Sums = {}
    for root in roots:
        with open_archive(root) as archive:
            total = found.setdefault(archive.identity.archive, Counter())
            for sample in archive.samples():
                total["samples"] += 1
                total["numbers"] += sample.seq
                total["node"] += sum(row.user_ticks or 0 for row in sample.node)
                total["jobs"] += sum(row.user_ticks or 0 for row in sample.job)
                total["processes"] += len(sample.process)
            total["sysinfos"] += sum(1 for _ in archive.sysinfos())
            stored = [archive.lines(one) for kind in ("sample", "sysinfo") for one in archive.segments(kind)]
            total["stored"] = sum(1 for lines in stored for _ in lines)
            assert not archive.findings, archive.findings
    return found


def assert_same(fleet: Fleet, machines: Iterable[Vm]) -> None:
    """The fleet has every record of the machines once, and what it has verifies."""
    assert sums(fleet.origins()) == sums(vm.root for vm in machines)
    for root in fleet.origins():
        report = verify_path(root)
        assert report.ok, report.findings


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)
