"""Folders and buckets: complete files only, each taken once, faults of one place without harm to others."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.verify.signature import read_trust
from vmsonar_archive.write.lock import WriterLock
from vmsonar_inspect.tables.stores import ObjectStore

from tests.fleet.place import Machines, Vm, assert_same
from tests.parts import requires
from tests.real.s3 import S3Server
from vmsonar.config.quantities import ByteSize
from vmsonar.config.shipping import Kept
from vmsonar.fleet import sources
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.sources import BucketSource, FolderSource
from vmsonar.fleet.store import Fleet


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def shipped(vm: Vm, inbox: Path, count: int = 3) -> None:
    for _ in range(count):
        vm.record(20)
        vm.increment().rename(inbox / f"{vm.root.name}-{len(list(inbox.iterdir()))}.tar")


def test_a_folder_is_emptied(inbox: Path, vm: Vm, fleet: Fleet, intake: Intake) -> None:
    shipped(vm, inbox)
    source = FolderSource(inbox, intake, keep=False)
    assert [receipt.accepted for receipt in source.round()] == [True] * 3
    assert list(inbox.iterdir()) == []
    assert_same(fleet, [vm])


def test_what_is_to_stay_is_taken_once_also_after_a_restart(
    inbox: Path, vm: Vm, fleet: Fleet, intake: Intake
) -> None:
    shipped(vm, inbox)
    assert len(list(FolderSource(inbox, intake, keep=True).round())) == 3
    again = FolderSource(inbox, intake, keep=True)
    assert list(again.round()) == []
    os.utime(sorted(inbox.iterdir())[0])
    (receipt,) = again.round()
    assert (receipt.records, receipt.repeats) == (0, 21)
    assert len(list(inbox.iterdir())) == 3


def test_what_is_not_complete_waits(
    inbox: Path, tmp_path: Path, vm: Vm, fleet: Fleet, intake: Intake
) -> None:
    vm.record(20)
    whole = vm.increment().read_bytes()
    growing = inbox / "growing.tar"
    growing.write_bytes(whole[: len(whole) // 2])
    (inbox / "a.tar.partial").write_bytes(whole)
    (inbox / ".hidden.tar").write_bytes(whole)
    (inbox / "folder.tar").mkdir()
    (inbox / "link.tar").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(inbox / "pipe.tar")
    source = FolderSource(inbox, intake, keep=False)
    assert list(source.round()) == []
    assert source.waiting == 4
    growing.write_bytes(whole)
    assert [receipt.accepted for receipt in source.round()] == [True]
    # One that nobody has gone on with for long is cut.
    growing.write_bytes(whole[: len(whole) // 2])
    os.utime(growing, (0, 0))
    assert [receipt.reason for receipt in source.round()] == ["damaged"]


@pytest.mark.parametrize("keep", [False, True])
def test_what_the_fleet_could_not_take_waits_for_the_next_collector(
    keep: bool, inbox: Path, vm: Vm, fleet: Fleet, intake: Intake, tmp_path: Path
) -> None:
    shipped(vm, inbox, 2)
    signers = tmp_path / "signers"
    signers.write_text("")
    strict = FolderSource(inbox, Intake(fleet, trust=read_trust(signers, "vm0")), keep=keep)
    assert [receipt.reason for receipt in strict.round()] == ["untrusted"] * 2
    assert list(strict.round()) == []
    assert len(list(inbox.iterdir())) == 2
    assert [receipt.accepted for receipt in FolderSource(inbox, intake, keep=keep).round()] == [True] * 2
    assert_same(fleet, [vm])


def test_what_another_collector_takes_meanwhile_is_passed_over(
    inbox: Path, vm: Vm, fleet: Fleet, intake: Intake
) -> None:
    shipped(vm, inbox, 6)
    mine, other = FolderSource(inbox, intake, keep=False), FolderSource(inbox, Intake(fleet), keep=False)
    taken = []
    for receipt in mine.round():
        taken.append(receipt)
        # Those that the first has listed and not come to.
        theirs = other.round()
        taken.append(next(theirs))
        theirs.close()
    assert [receipt.accepted for receipt in taken] == [True] * 6
    assert sum(receipt.records for receipt in taken) == 6 * 21
    assert (mine.trouble, mine.is_behind) == (None, False)
    assert_same(fleet, [vm])


def test_one_that_cannot_be_taken_keeps_no_other(
    inbox: Path, machines: Machines, fleet: Fleet, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [machines() for _ in range(3)]
    for vm in made:
        shipped(vm, inbox, 2)
    opened = os.open

    def denied(path: object, *more: Any, **options: Any) -> int:
        if str(path).endswith("/vm1-3.tar"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sources, "_LOCK_SECONDS", 0.1)
    source = FolderSource(inbox, intake, keep=False)
    (inbox / "vm1-3.tar").rename(inbox / "old.tar")
    os.utime(inbox / "old.tar", (0, 0))
    (inbox / "old.tar").rename(inbox / "vm1-3.tar")
    lock = fleet.archive(made[2].archive)
    lock.mkdir(parents=True)
    held = WriterLock(lock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        assert len(list(source.round())) == 3
    assert source.trouble is not None
    assert "and 2 more" in source.trouble
    assert source.is_behind
    assert list(source.round()) == []
    held.close()
    assert not source.is_behind, "nobody delivered anything since"
    start = time.monotonic()
    monkeypatch.setattr(sources.time, "monotonic", lambda: start + 100)
    assert len(list(source.round())) == 3
    assert source.trouble is None
    assert_same(fleet, made)


def test_a_source_within_the_fleet_is_refused(fleet: Fleet, intake: Intake) -> None:
    for folder in (fleet.root, fleet.archives):
        with pytest.raises(UsageError):
            FolderSource(folder, intake, keep=False)


def test_a_full_disk_acknowledges_nothing(
    inbox: Path, vm: Vm, fleet: Fleet, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(vm, inbox)
    source = FolderSource(inbox, intake, keep=False)
    write_all, left = files.write_all, [2000]

    def full(descriptor: int, data: bytes) -> None:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(descriptor, data)

    for room in (0, 200, 600, 1200):
        left[0] = room
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_all", full)
            with pytest.raises(OSError, match="space"):
                list(source.round())
        assert len(list(inbox.iterdir())) + sum(1 for _ in fleet.evidence.rglob("*.tar.zst")) >= 3
    assert all(receipt.accepted for receipt in source.round())
    assert_same(fleet, [vm])


def collect(*arguments: object) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "vmsonar", "collect", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_the_command(inbox: Path, tmp_path: Path, vm: Vm) -> None:
    shipped(vm, inbox)
    (inbox / "bad.tar").write_bytes(b"no bundle")
    os.utime(inbox / "bad.tar", (0, 0))
    (inbox / "half.tar").write_bytes(b"the begin")
    root = tmp_path / "collected"
    done = collect(inbox, "--fleet", root, "--once", "--json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    # Increments overlap a little: what was being sealed is sent again.
    assert answer.pop("repeats") >= 0
    assert answer == {"accepted": 3, "refused": 1, "records": 63, "waiting": 1, "failed": {}}
    assert "1 not complete yet" in collect(inbox, "--fleet", root, "--once").stdout
    assert "bad.tar" in done.stderr
    assert "not_a_bundle" in next((root / "refused").glob("*.json")).read_text()
    missing = collect(tmp_path / "nowhere", "--fleet", root, "--once")
    assert missing.returncode == 3
    assert "is not a folder" in missing.stderr
    assert collect("--fleet", root, "--once").returncode == 2, "nothing to take, once"
    assert collect(inbox, "--fleet", vm.root, "--once").returncode == 2, "an archive is no fleet"
    # What is collected is read like any archive.
    words = [
        sys.executable,
        "-m",
        "vmsonar",
        "sql",
        str(root / "archives"),
        "SELECT count(*) AS n FROM samples",
        "--json",
    ]
    asked = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(asked.stdout) == [{"n": 60}], asked.stderr


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    name = request.node.name.replace("_", "-").lower()[:50]
    s3_server.client().create_bucket(Bucket=name)
    return name


def put(server: S3Server, bucket: str, vm: Vm, count: int = 3) -> None:
    for number in range(count):
        vm.record(20)
        key = f"fleet/{vm.root.name}/{number}.tar"
        server.client().put_object(Bucket=bucket, Key=key, Body=vm.increment().read_bytes())


@requires("moto")
def test_a_bucket(bucket: str, s3_server: S3Server, machines: Machines, fleet: Fleet, intake: Intake) -> None:
    made = [machines(), machines()]
    for vm in made:
        put(s3_server, bucket, vm)
    source = BucketSource(f"s3://{bucket}/fleet", intake, keep=True)
    assert sum(receipt.records for receipt in source.round()) == 2 * 63
    assert list(source.round()) == []
    again = BucketSource(f"s3://{bucket}/fleet", intake, keep=False)
    taken = list(again.round())
    assert sum(receipt.records for receipt in taken) == 0
    assert sum(receipt.repeats for receipt in taken) >= 2 * 63
    left = s3_server.client().list_objects_v2(Bucket=bucket).get("Contents", [])
    assert [entry["Key"] for entry in left if not entry["Key"].endswith("/")] == []
    assert_same(fleet, made)
    assert list(fleet.incoming.iterdir()) == []


@requires("moto")
def test_what_is_refused_leaves_a_bucket_when_it_is_set_aside(
    bucket: str, s3_server: S3Server, vm: Vm, fleet: Fleet
) -> None:
    s3_server.client().put_object(Bucket=bucket, Key="fleet/small.tar", Body=b"no bundle")
    s3_server.client().put_object(Bucket=bucket, Key="fleet/large.tar", Body=b"x" * 5000)
    intake = Intake(fleet, refused=Kept(max_bytes=ByteSize(3000)))
    source = BucketSource(f"s3://{bucket}/fleet", intake, keep=False)
    assert [receipt.reason for receipt in source.round()] == ["not_a_bundle"] * 2
    left = s3_server.client().list_objects_v2(Bucket=bucket).get("Contents", [])
    assert [entry["Key"] for entry in left if entry["Size"]] == ["fleet/large.tar"]
    assert list(source.round()) == []


@requires("moto")
def test_what_cannot_be_deleted_is_filed_once_and_deleted_later(
    bucket: str, s3_server: S3Server, vm: Vm, fleet: Fleet, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3_server, bucket, vm, 4)
    remove, calls = ObjectStore.remove, [0]

    def failing(store: ObjectStore, name: str) -> None:
        calls[0] += 1
        if calls[0] in (2, 3, 5):
            raise VmsonarError("cannot delete: the connection ended")
        remove(store, name)

    monkeypatch.setattr(ObjectStore, "remove", failing)
    monkeypatch.setattr(sources, "_AGAIN_SECONDS", 0.0)
    source = BucketSource(f"s3://{bucket}/fleet", intake, keep=False)
    assert sum(receipt.records for receipt in source.round()) == 84
    assert "cannot delete" in (source.trouble or "")
    rest = [receipt for _ in range(4) for receipt in source.round()]
    assert [receipt.records for receipt in rest] == [0, 0, 0]
    left = s3_server.client().list_objects_v2(Bucket=bucket).get("Contents", [])
    assert [entry["Key"] for entry in left if entry["Size"]] == []
    assert_same(fleet, [vm])


@requires("moto")
def test_a_bucket_that_fails_midway(
    bucket: str, s3_server: S3Server, vm: Vm, fleet: Fleet, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3_server, bucket, vm, 4)
    download, calls = ObjectStore.download, [0]

    def failing(store: ObjectStore, name: str, target: Path) -> Any:
        calls[0] += 1
        download(store, name, target)
        if calls[0] % 2:
            target.write_bytes(target.read_bytes()[:1000])
            raise VmsonarError("cannot fetch: the connection ended")

    monkeypatch.setattr(ObjectStore, "download", failing)
    monkeypatch.setattr(sources, "_AGAIN_SECONDS", 0.0)
    source = BucketSource(f"s3://{bucket}/fleet", intake, keep=False)
    list(source.round())
    assert "the connection ended, and 1 more" in (source.trouble or "")
    assert source.is_behind
    for _ in range(6):
        list(source.round())
    assert calls[0] >= 8
    assert (source.trouble, source.is_behind) == (None, False)
    assert_same(fleet, [vm])
    assert list(fleet.refused.iterdir()) == []
    assert list(fleet.incoming.iterdir()) == []
