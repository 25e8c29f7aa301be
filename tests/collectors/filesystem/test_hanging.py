"""A file system that never answers holds up nobody, and a gap row says so."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive

from tests.collectors.filesystem.conftest import umount
from tests.collectors.filesystem.watching import Watch
from tests.collectors.netfs.trees import ROOT
from tests.fixtures.hosts import small_vm
from tests.fixtures.hosts.write import host_at, write
from tests.parts import requires
from tests.real.fuse_server import BLOCKS, FILES, FILES_FREE, FREE, fuse_mount
from tests.real.wait import wait_until
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.filesystem.collector import make
from vmsonar.collectors.netfs.collector import NetfsCollector
from vmsonar.config.schema import Config

FIGURES = (BLOCKS * 4096, FREE * 4096, FILES, FILES_FREE)


def figures(row):
    return row.bytes_total, row.bytes_available, row.inodes_total, row.inodes_available


@pytest.fixture
def served(own_mounts):
    """A mounted file system in user space, and its server."""
    place = own_mounts / "served"
    place.mkdir()
    with fuse_mount(place) as server:
        yield str(place), server


def rows_when(watch: Watch, place: str, wanted) -> None:
    """Samples until the row of that place is as wanted."""

    def look() -> bool:
        row = watch.rows().get(place)
        return row is not None and wanted(row)

    wait_until(look, 20, f"a row of {place}")


@requires("fuse_mount")
def test_it_is_asked_by_a_helper_and_when_it_hangs_samples_stay_in_time(served):
    place, server = served
    with Watch() as watch:
        first = watch.rows(fresh=True)[place]
        assert (first.fs_type, first.space_source) == ("fuse", "helper")
        assert figures(first) in (FIGURES, (None,) * 4)  # a helper that is quick has asked already
        rows_when(watch, place, lambda row: figures(row) == FIGURES)
        helper = watch.collector.companion_pid
        assert watch.gaps == []
        server.send_signal(signal.SIGSTOP)
        told, slowest = [], 0.0
        for _ in range(40):
            begin = time.monotonic()
            rows = watch.rows()
            slowest = max(slowest, time.monotonic() - begin)
            told += watch.gaps
            if place in rows and watch.gaps:
                assert figures(rows[place]) == (None,) * 4
        assert slowest < 0.25
        assert [gap.reason for gap in told] == ["timeout"]
        assert "fuse" in told[0].detail
        assert place not in told[0].detail
        server.send_signal(signal.SIGCONT)
        rows_when(watch, place, lambda row: figures(row) == FIGURES)
        assert watch.collector.companion_pid == helper


@requires("fuse_mount")
def test_what_is_mounted_in_its_place_is_asked(served):
    place, server = served
    with Watch() as watch:
        rows_when(watch, place, lambda row: figures(row) == FIGURES)
        server.send_signal(signal.SIGSTOP)
        for _ in range(15):
            watch.rows()
        umount("-l", place)
        with fuse_mount(Path(place)):
            rows_when(watch, place, lambda row: figures(row) == FIGURES)


@requires("fuse_mount")
def test_one_that_hangs_does_not_keep_another_from_answering(served, own_mounts):
    _, server = served
    other = own_mounts / "other"
    other.mkdir()
    server.send_signal(signal.SIGSTOP)
    with fuse_mount(other), Watch() as watch:
        rows_when(watch, str(other), lambda row: figures(row) == FIGURES)


@requires("fuse_mount")
def test_a_helper_that_is_killed_is_started_again(served):
    place, _ = served
    with Watch() as watch:
        rows_when(watch, place, lambda row: figures(row) == FIGURES)
        os.kill(watch.collector.companion_pid, signal.SIGKILL)
        wait_until(lambda: watch.rows() is not None and watch.gaps != [], 10, "a gap row")
        assert [gap.reason for gap in watch.gaps] == ["helper"]
        rows_when(watch, place, lambda row: figures(row) == FIGURES)


@requires("fuse_mount")
def test_a_recorder_that_leaves_answers_unread_gets_no_traceback(served):
    place, _ = served
    ours, theirs = socket.socketpair()
    line = [sys.executable, "-m", "vmsonar.collectors.filesystem.helper", str(theirs.fileno())]
    with subprocess.Popen(line, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE) as helper, ours:
        theirs.close()
        ours.sendall(b"1 " + place.encode().hex().encode() + b"\n")
        assert select.select([ours], [], [], 20)[0]
        ours.close()
        assert helper.communicate(timeout=20)[1] == b""
        assert helper.returncode == 0


@requires("fuse_mount")
def test_an_unmount_ends_the_helper(served):
    place, _ = served
    with Watch() as watch:
        rows_when(watch, place, lambda row: figures(row) == FIGURES)
        helper = watch.collector.companion_pid
        subprocess.run(["umount", place], check=True)
        assert place not in watch.rows(fresh=True)
        assert watch.collector.companion_pid is None
        assert not Path(f"/proc/{helper}").exists()


@requires("fuse_mount")
def test_the_recorder_records_and_stops_in_time_beside_it(served, tmp_path):
    place, server = served
    server.send_signal(signal.SIGSTOP)
    config = tmp_path / "config.yaml"
    config.write_text("interval: 500ms\ncollectors: {container: none, gpu: none, process: none}\n")
    words = ["-m", "vmsonar.daemon", "--archive", str(tmp_path / "archive"), "--config", str(config)]
    daemon = subprocess.Popen([sys.executable, *words])

    def samples():
        if not (tmp_path / "archive" / "archive.json").exists():
            return []
        with open_archive(tmp_path / "archive") as archive:
            return list(archive.samples())

    wait_until(lambda: len(samples()) >= 12, 60, "twelve samples")
    begin = time.monotonic()
    daemon.terminate()
    assert daemon.wait(10) == 0
    assert time.monotonic() - begin < 2.5
    found = samples()
    gaps = [gap for sample in found for gap in sample.gap if gap.collector == "filesystem"]
    assert [gap.reason for gap in gaps] == ["timeout"]
    assert not [gap for sample in found for gap in sample.gap if gap.collector == "daemon"]
    assert max(sample.cost[0].wall_time for sample in found[1:]) < 0.25e9
    assert {row.bytes_total for sample in found for row in sample.filesystem if row.mount_point == place} == {
        None
    }


@requires("strace", "tmpfs_mount")
def test_a_share_is_never_touched(tmp_path):
    """Neither by the recorder nor by a helper."""
    host = small_vm(tmp_path)
    code = (
        "from pathlib import Path\nfrom tests.collectors.filesystem.watching import Watch\n"
        "from tests.fixtures.hosts.write import host_at\n"
        f"watch = Watch(host_at(Path({str(tmp_path)!r})))\n"
        "for _ in range(3): rows = watch.rows(fresh=True)\n"
        "print([(row.fs_type, row.space_source, row.bytes_total) for row in rows.values() if row.fs_type == 'nfs4'])\n"
    )
    log = tmp_path / "calls"
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=file", "-o", log, sys.executable, "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[('nfs4', 'none', None)]\n"
    calls = log.read_text()
    assert str(host.proc / "1/mountinfo") in calls
    assert "statfs" in calls
    assert "shared data" not in calls


def test_a_fixture_machine(tmp_path):
    with Watch(small_vm(tmp_path)) as watch:
        rows = watch.rows(fresh=True)
        assert {point: row.fs_type for point, row in rows.items()} == {
            "/": "ext4",
            "/run": "tmpfs",
            "/srv/shared data": "nfs4",
        }
        share = rows["/srv/shared data"]
        assert (share.device, share.read_only, figures(share)) == ("files:/export", False, (None,) * 4)
        assert rows["/run"].bytes_total == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
        assert [one.item for one in watch.collector.capabilities() if not one.available] == [
            "room on network file systems"
        ]


@requires("fuse_mount")
@pytest.mark.parametrize("kind", ["nfs4", "nfs", "lustre", "ceph", "cifs", "9p", "fuse.sshfs"])
def test_no_share_is_touched(kind, served, tmp_path):
    """Whoever touches it hangs: the table of mounts calls a file system that answers nobody a share."""
    place, server = served
    line = f"36 22 0:33 / {place} rw - {kind} files.example:/data rw,vers=4.2\n"
    write(tmp_path / "machine", {"proc/1/mountinfo": ROOT + line})
    server.send_signal(signal.SIGSTOP)
    over = threading.Event()

    def look() -> None:
        setup = Setup(Config(), host_at(tmp_path / "machine"))
        tick = Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=10**9, boot="b", fresh=True)
        for collector in (make(setup), NetfsCollector(setup)):
            collector.collect(tick)
            collector.capabilities()
            collector.close()
        over.set()

    threading.Thread(target=look, daemon=True).start()
    assert over.wait(10), "somebody touched the share"
