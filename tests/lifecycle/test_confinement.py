"""The recorder under its unit's limits on this kernel, which has the proc connector; the booted guest's has none.

What systemd would do is done here by hand, as the unit's own text says: an ordinary user, no capabilities, no new
privileges, only its socket families, no privileged calls, and a network of its own where it asks for one. The rest of
the hardening (mounts, devices, namespaces, memory) has no bearing on netlink: guests that systemd boots have it.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Sample

from tests.parts import requires
from tests.real import stranger
from tests.real.wait import wait_until

pytestmark = [requires("root", "gcc", "stranger"), requires("connector")]

UNIT = Path(__file__).parents[2] / "cloud-init/units/vmsonar.service"
FAMILIES = "RestrictAddressFamilies=AF_UNIX AF_NETLINK"
INTERVAL = 3
CONFIG = """
log: warning
collectors: {container: none, gpu: none, energy: none}
accounts: {use: none}
"""
# Of another user, in a group of its own, and over before the next sample.
JOB = "sleep 1.5; exit 7"


def settings(unit: str) -> dict[str, str]:
    """What a unit sets; of one that is set again, all of it (systemd.syntax(7))."""
    found: dict[str, str] = {}
    for line in unit.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = f"{found.get(name, '')} {value}".strip()
    return found


@dataclass
class Confinement:
    """What of a unit is reproduced, as the words that stand before a command."""

    launcher: Path
    unit: str

    def prefix(self) -> list[str]:
        told = settings(self.unit)
        assert told["CapabilityBoundingSet"] == told["AmbientCapabilities"] == ""
        assert told["NoNewPrivileges"] == "yes"
        assert told["SystemCallFilter"] == "@system-service ~@privileged"
        families = [str(int(getattr(socket, name))) for name in told["RestrictAddressFamilies"].split()]
        away = ["unshare", "--net"] if told.get("PrivateNetwork") == "yes" else []
        user = str(stranger.STRANGER)
        ordinary = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set=-all",
                    "--inh-caps=-all", "--no-new-privs"]  # fmt: skip
        return [*away, *ordinary, str(self.launcher), *families, "--"]


@dataclass
class Confined:
    """A recorder that runs under it."""

    process: subprocess.Popen[bytes]
    archive: Path
    log: Path

    def samples(self) -> list[Sample]:
        """Of a copy: root reads nobody else's archive."""
        if not (self.archive / "archive.json").exists():
            return []
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(self.archive, f"{place}/archive")
            with open_archive(Path(place) / "archive") as archive:
                return list(archive.samples())

    def wait_for_sample(self) -> None:
        """Returns soon after the next sample."""
        before = len(self.samples())
        wait_until(
            lambda: self.process.poll() is not None or len(self.samples()) > before, 60, "the next sample"
        )
        assert self.process.poll() is None, self.log.read_text()

    def gaps(self) -> dict[str, str | None]:
        return {gap.reason: gap.detail for sample in self.samples() for gap in sample.gap}


@contextmanager
def open_folder() -> Iterator[Path]:
    """Where a stranger may go: each pytest that starts shuts the folder of all of them."""
    with tempfile.TemporaryDirectory(prefix="confined-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Path]:
    with open_folder() as place:
        source = Path(stranger.__file__).with_name("confine.c")
        subprocess.run(["gcc", "-O1", "-o", place / "confine", source], check=True)
        yield place / "confine"


@contextmanager
def recording(confinement: Confinement, folder: Path) -> Iterator[Confined]:
    place = folder / "recorder"
    place.mkdir()
    os.chown(place, stranger.STRANGER, stranger.STRANGER)
    (folder / "config.yaml").write_text(CONFIG)
    python, *_ = stranger.vmsonar()
    daemon = [python, "-P", "-m", "vmsonar.daemon", "--archive", str(place / "archive"), "--config",
              str(folder / "config.yaml"), "--interval", f"{INTERVAL}s"]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*confinement.prefix(), *daemon], env=stranger.environment(), cwd="/", stderr=log, process_group=0
        )
    try:
        yield Confined(process, place / "archive", folder / "log")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


def run_job() -> int:
    with subprocess.Popen(["sh", "-c", JOB], process_group=0, user=stranger.ANOTHER, group=stranger.ANOTHER,
                          extra_groups=(), cwd="/") as job:  # fmt: skip
        assert job.wait() == 7
    return job.pid


def test_the_limits_are_in_force(launcher: Path) -> None:
    script = "import socket, os; socket.socket(socket.AF_UNIX)\n"
    for call in ("socket.socket(socket.AF_INET)", "os.setgroups([])"):
        script += f"try: {call}\nexcept OSError as error: print(error.errno)\n"
    prefix = Confinement(launcher, UNIT.read_text()).prefix()
    done = subprocess.run(
        [*prefix, stranger.vmsonar()[0], "-c", script], capture_output=True, check=True, cwd="/"
    )
    assert done.stdout.split() == [b"97", b"1"]  # EAFNOSUPPORT, EPERM


def test_under_its_units_limits_the_recorder_hears_births_and_deaths(launcher: Path, folder: Path) -> None:
    with recording(Confinement(launcher, UNIT.read_text()), folder) as recorder:
        recorder.wait_for_sample()
        text = Path(f"/proc/{recorder.process.pid}/status").read_text()
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert (status["Seccomp"], status["NoNewPrivs"], status["Uid"].split()[1]) == ("2", "1", "54321")
        assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        recorder.wait_for_sample()
        job = run_job()
        recorder.wait_for_sample()
        recorder.wait_for_sample()
        assert "lifeline" not in recorder.gaps()
        samples = recorder.samples()
    (row,) = [row for sample in samples for row in sample.job if row.pgid == job]
    assert (row.processes, row.processes_seen) == (0, 1)
    assert row.end_boottime is not None
    (end,) = [
        event for sample in samples for event in sample.event if event.pgid == job and event.subject == "job"
    ]
    assert (end.event_type, end.exit_code, end.exit_signal, end.exit_source) == ("exit", 7, None, "connector")
    assert end.runtime == pytest.approx(1.5e9, rel=0.3)


BROKEN = {
    "no netlink": (FAMILIES, "RestrictAddressFamilies=AF_UNIX", "no netlink connector: Address family not supported"),
    "a network of its own": (FAMILIES, f"{FAMILIES}\nPrivateNetwork=yes", "the kernel does not tell births and deaths"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "instead", "why"), BROKEN.values(), ids=BROKEN)
def test_a_unit_that_shuts_the_kernel_out_is_told_as_a_gap(
    launcher: Path, folder: Path, line: str, instead: str, why: str
) -> None:
    """And the job between two samples is missed: so the test above would notice such a unit."""
    unit = UNIT.read_text()
    assert line in unit
    with recording(Confinement(launcher, unit.replace(line, instead)), folder) as recorder:
        recorder.wait_for_sample()
        recorder.wait_for_sample()
        job = run_job()
        recorder.wait_for_sample()
        assert (recorder.gaps()["lifeline"] or "").startswith(why)
        samples = recorder.samples()
    assert [row for sample in samples for row in sample.job if row.pgid == job] == []
    assert [event for sample in samples for event in sample.event if event.pgid == job] == []
