"""The daemon on a machine that misbehaves: a full disk, another name, another identity. Needs root for its stages."""

import os
import socket
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.read.reader import open_archive

from tests.daemon.running import ROOT, command, daemon, events, samples, stop, wait_for
from tests.real.wait import let_pass

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to mount and to rename a machine")


@contextmanager
def small_disk(folder, size):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """Leaves no room; returns the file that takes it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 65536):
            pass
    return ballast


def test_a_full_disk_is_logged_once_and_recorded_when_space_returns(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("budget: {min_free: 1MiB}\n")
    with small_disk(tmp_path / "disk", "8m") as disk:
        archive = disk / "archive"
        with daemon(archive, "--interval=100ms", f"--config={config}") as process:
            wait_for(lambda: len(samples(archive)) > 1)  # the machine is described after the first
            ballast = fill(disk)
            before = len(samples(archive))
            let_pass(1.5)
            assert len(samples(archive)) <= before + 1
            assert process.poll() is None, "a full disk stops writing, never the daemon"
            ballast.unlink()
            wait_for(lambda: len(samples(archive)) >= before + 3)
            _, code, log = stop(process)
        gaps = [gap for sample in samples(archive) for gap in sample.gap if gap.collector == "archive"]
    assert code == 0
    assert log.count("cannot write a sample") == 1
    assert log.count("writing to") == 1
    assert len(gaps) == 1
    assert gaps[0].reason == "disk_full"
    assert gaps[0].lost >= 5


def test_a_start_on_a_full_disk_waits_and_records_the_gap(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("budget: {min_free: 0}\n")
    address = tmp_path / "notify"
    with (
        small_disk(tmp_path / "disk", "4m") as disk,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(address))
        manager.settimeout(20)
        archive = disk / "new" / "archive"
        ballast = fill(disk)
        line = command(archive, "--interval=100ms", f"--config={config}")
        environment = os.environ | {"NOTIFY_SOCKET": str(address)}
        process = subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            heard = [manager.recv(4096).decode() for _ in range(2)]
            let_pass(1)
            assert process.poll() is None
            ballast.unlink()
            wait_for(lambda: len(samples(archive)) > 3)
            _, code, log = stop(process)
        finally:
            process.kill()
            process.communicate()
        found = samples(archive)
    assert "READY=1" in heard
    assert any("waiting: cannot record into" in one for one in heard)
    assert code == 0
    assert log.count("No space left on device; trying again until it works") == 1
    (gap,) = [gap for gap in found[0].gap if gap.collector == "archive"]
    assert gap.reason == "disk_full"
    assert gap.lost >= 8
    assert gap.since < found[0].time


def test_a_start_on_a_full_disk_that_stays_full_ends_when_told(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        fill(disk)
        line = command(disk / "archive", "--interval=100ms", "--for=500ms")
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "No space left on device" in done.stderr


def test_a_start_on_a_read_only_disk_waits_until_it_can_be_written(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("budget: {min_free: 0}\n")
    with small_disk(tmp_path / "disk", "4m") as disk:
        archive = disk / "archive"
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        line = command(archive, "--interval=100ms", f"--config={config}")
        process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            let_pass(1)
            assert process.poll() is None
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            wait_for(lambda: len(samples(archive)) > 2)
            _, code, log = stop(process)
        finally:
            process.kill()
            process.communicate()
    assert code == 0
    assert "Read-only file system; trying again until it works" in log


@contextmanager
def renamed_machine(tmp_path, archive):
    """A daemon in a UTS and a mount namespace of its own, with a machine id that the test can write."""
    identity = tmp_path / "machine-id"
    identity.write_text("a" * 32 + "\n")
    stage = f'mount --bind {identity} /etc/machine-id && exec "$@"'
    prefix = ("unshare", "--uts", "--mount", "sh", "-c", stage, "sh")
    with daemon(archive, "--interval=100ms", prefix=prefix) as process:
        yield process, identity


def rename(process, name):
    subprocess.run(["nsenter", "-t", str(process.pid), "--uts", "hostname", name], check=True)


def test_a_host_name_that_cloud_init_sets_late(tmp_path):
    archive = tmp_path / "archive"
    with renamed_machine(tmp_path, archive) as (process, _):
        rename(process, "late-1.example.org")
        wait_for(lambda: "identity_change" in events(archive))
        _, code, log = stop(process)
    assert code == 0
    assert "this machine has changed: hostname_short:" in log
    with open_archive(archive) as opened:
        names = [info.hostname_full for info in opened.sysinfos()]
        runs = {sample.run for sample in opened.samples()}
    assert names[-1] == "late-1.example.org"
    assert len(names) == 2
    assert len(runs) == 1, "the same archive, the same run"


def test_another_machine_id_begins_another_archive(tmp_path):
    archive = tmp_path / "archive"
    with renamed_machine(tmp_path, archive) as (process, identity):
        first = read_identity(archive)
        identity.write_text("b" * 32 + "\n")
        wait_for(lambda: read_identity(archive).archive != first.archive if _there(archive) else False)
        wait_for(lambda: len(samples(archive)) >= 2)
        _, code, _ = stop(process)
    assert code == 0
    assert (first.machine_id, read_identity(archive).machine_id) == ("a" * 32, "b" * 32)
    assert events(archive) == ["identity_change", "daemon_stop"]
    earlier = archive / "earlier" / first.archive
    assert events(earlier) == ["daemon_start"]
    with open_archive(earlier) as opened:
        assert all(segment.sealed for segment in opened.segments("sample"))
    with open_archive(archive) as opened:
        assert [info.machine_id for info in opened.sysinfos()] == ["b" * 32]


def _there(archive: Path) -> bool:
    return (archive / "archive.json").exists()
