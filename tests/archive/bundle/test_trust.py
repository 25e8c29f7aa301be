"""An archive whose owner turned against root, outputs planted in advance, and runs that were killed."""

import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from vmsonar_archive.bundle import make, worker
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.path import verify_path

from tests.making.bundles import STRANGER
from tests.parts import requires

SECRET = b"root:$6$only-root-may-read-this"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


def _victim(archive: Path) -> Path:
    """The segment that is replaced by something else."""
    return next(archive.glob("2026/11/16/sample-14*.zst"))


def _bundle(archive: Path, output: Path) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "vmsonar", "bundle", "--archive", archive, "-o", output]
    return subprocess.run(command, capture_output=True, timeout=30, check=False)


def _check_refused(archive: Path, tmp_path: Path, word: bytes) -> None:
    done = _bundle(archive, tmp_path / "out.tar")
    assert done.returncode == 1, done.stderr
    assert b"error: refused: " in done.stderr
    assert word in done.stderr
    assert SECRET not in (tmp_path / "out.tar").read_bytes()
    # The journal still tells that something belongs there.
    report = verify_path(tmp_path / "out.tar")
    assert [finding.code.value for finding in report.findings if finding.path.startswith("2026")] == [
        "missing"
    ]
    assert report.samples == 12


@requires("root")
def test_symlink_to_a_secret(theirs: Path, secret: Path, tmp_path: Path) -> None:
    victim = _victim(theirs)
    victim.unlink()
    victim.symlink_to(secret)
    _check_refused(theirs, tmp_path, b"symbolic link")


@requires("root")
def test_hard_link(theirs: Path, secret: Path, tmp_path: Path) -> None:
    victim = _victim(theirs)
    victim.unlink()
    # Readable, so that it is not the dropped rights that keep it out.
    secret.chmod(0o644)
    os.link(secret, victim)
    _check_refused(theirs, tmp_path, b"hard link")


@requires("root")
def test_fifo_does_not_hang(theirs: Path, tmp_path: Path) -> None:
    victim = _victim(theirs)
    victim.unlink()
    os.mkfifo(victim)
    os.chown(victim, STRANGER, STRANGER)
    _check_refused(theirs, tmp_path, b"not a regular file")


@requires("root")
def test_another_owners_file(theirs: Path, secret: Path, tmp_path: Path) -> None:
    victim = _victim(theirs)
    victim.unlink()
    shutil.copy(secret, victim)
    victim.chmod(0o644)
    _check_refused(theirs, tmp_path, b"belongs to uid 0")


@requires("root")
def test_folder_replaced_by_a_link(theirs: Path, tmp_path: Path) -> None:
    day = theirs / "2026/11/16"
    day.rename(tmp_path / "elsewhere")
    day.symlink_to(tmp_path / "elsewhere")
    done = _bundle(theirs, tmp_path / "out.tar")
    assert done.returncode == 1
    assert b"refused" in done.stderr
    assert verify_path(tmp_path / "out.tar").samples == 0


@requires("root")
def test_root_reads_with_the_owners_rights(theirs: Path, tmp_path: Path) -> None:
    victim = _victim(theirs)
    victim.chmod(0)
    done = _bundle(theirs, tmp_path / "out.tar")
    assert done.returncode == 1
    assert b"Permission denied" in done.stderr
    assert (tmp_path / "out.tar").stat().st_uid == 0


@requires("root")
def test_root_and_owner_make_the_same_bytes(theirs: Path, tmp_path: Path) -> None:
    assert _bundle(theirs, tmp_path / "out.tar").returncode == 0
    for path in [theirs, *theirs.rglob("*")]:
        os.chown(path, 0, 0)
    assert _bundle(theirs, tmp_path / "again.tar").returncode == 0
    assert (tmp_path / "out.tar").read_bytes() == (tmp_path / "again.tar").read_bytes()


def test_planted_output_is_not_touched(archive: Path, secret: Path, tmp_path: Path) -> None:
    (tmp_path / "out.tar").symlink_to(secret)
    with pytest.raises(VmsonarError, match="exists"):
        bundle_to_file(archive, tmp_path / "out.tar")
    (tmp_path / "out.tar").unlink()
    (tmp_path / "out.tar.partial").symlink_to(secret)
    with pytest.raises(VmsonarError, match="partial exists"):
        bundle_to_file(archive, tmp_path / "out.tar")
    assert secret.read_bytes() == SECRET
    assert not (tmp_path / "out.tar").exists()


@requires("root")
def test_planted_partial_of_a_stranger_stays(archive: Path, tmp_path: Path) -> None:
    planted = tmp_path / "out.tar.partial"
    planted.write_text("theirs")
    os.chown(planted, STRANGER, STRANGER)
    with pytest.raises(VmsonarError, match="not ours"):
        bundle_to_file(archive, tmp_path / "out.tar")
    assert planted.read_text() == "theirs"


def _killed_runs(archive: Path, folder: Path, moments: list[float]) -> int:
    """Kills a run at each moment after its start; returns how many left a partial file."""
    before = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    partial = 0
    for number, moment in enumerate(moments):
        output = folder / f"{number}.tar"
        command = [sys.executable, "-m", "vmsonar", "bundle", "--archive", str(archive), "-o", str(output)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
        child.wait()
        partial += output.with_name(f"{number}.tar.partial").exists()
        assert not output.exists() or verify_path(output).ok
        assert _bundle(archive, folder / f"{number}-again.tar").returncode == 0
    assert {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()} == before
    return partial


def test_killed_at_some_moments(archive: Path, tmp_path: Path) -> None:
    _killed_runs(archive, tmp_path, [0.05, 0.2, 0.3, 0.4])


@pytest.mark.chaos
def test_killed_at_many_moments(archive: Path, tmp_path: Path) -> None:
    _killed_runs(archive, tmp_path, [number * 0.01 for number in range(100)])


def test_leftover_of_a_killed_run_is_replaced(archive: Path, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "out.tar.partial").write_bytes(b"half")
    bundle_to_file(archive, tmp_path / "out.tar")
    assert (tmp_path / "out.tar").read_bytes() == bundle.read_bytes()
    assert not (tmp_path / "out.tar.partial").exists()


@requires("root")
def test_progress_is_drawn_without_roots_rights(theirs: Path, tmp_path: Path) -> None:
    """On a terminal the bar is drawn by the child, which may not be able to load anything any more."""
    shown, ours = pty.openpty()
    command = [sys.executable, "-m", "vmsonar", "bundle", "--archive", theirs, "-o", tmp_path / "x.tar"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=ours)
    os.close(ours)
    text = b""
    with suppress(OSError):
        while part := os.read(shown, 4096):
            text += part
    os.close(shown)
    assert child.wait(30) == 0, text
    assert b"bundling" in text
    assert verify_path(tmp_path / "x.tar").ok


@pytest.mark.parametrize("name", ["../escaped", "/etc/cron.d/x", "a/b", "a\0b", "a.tar", "x" * 300])
def test_a_worker_does_not_choose_where_root_writes(name: str) -> None:
    ours, theirs = socket.socketpair()
    asked: list[str] = []

    def open_output(wanted: str) -> int:
        asked.append(wanted)
        return theirs.fileno()

    with ours, theirs:
        worker.send(theirs, worker.WorkerMessage(name=name))
        with pytest.raises(VmsonarError, match="no name of a bundle"):
            make._serve(ours, open_output, Progress())
    assert asked == []
