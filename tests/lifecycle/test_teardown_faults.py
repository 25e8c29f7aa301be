"""A target that is gone, read-only or full, an archive that is gone, two at once: one line each, and nothing lost."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive

from tests.lifecycle.vm import Vm, bundles
from tests.parts import requires
from tests.real.wait import wait_until
from vmsonar.lifecycle.teardown import teardown_lock

pytestmark = pytest.mark.slow


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def everything(vm: Vm, *folders: Path) -> list[int]:
    """The numbers of all samples in the bundles of some folders."""
    return sorted(number for folder in folders for path in bundles(folder) for number in vm.numbers(path))


@requires("tmpfs_mount")
@pytest.mark.parametrize(
    ("options", "word"), [(("size=8k",), "No space left on device"), (("ro",), "Read-only file system")]
)
def test_a_target_that_takes_nothing(vm, tmp_path, options, word):
    with mounted(tmp_path / "share", *options) as share:
        code, said = vm.teardown(to=str(share))
        assert (code, said["delivered"], len(said["waiting"])) == (3, [], 1)
        assert len(said["troubles"]) == 1
        assert word in said["troubles"][0]
        assert list(share.iterdir()) == []
    assert vm.teardown("--resume", to=str(share))[0] == 0
    assert everything(vm, share) == list(range(2, 42))


@requires("tmpfs_mount")
def test_everything_is_full_and_the_archive_still_has_it(vm, tmp_path):
    with mounted(tmp_path / "share", "size=8k") as share, mounted(tmp_path / "waiting", "size=8k"):
        code, said = vm.teardown(to=str(share))
        assert (code, said["waiting"], len(said["troubles"])) == (3, [], 2)
        assert all("No space left on device" in trouble for trouble in said["troubles"])
    assert vm.teardown(to=str(share))[0] == 0
    assert everything(vm, share) == list(range(2, 42))


@requires("tmpfs_mount")
def test_a_share_that_is_unplugged_and_back(vm, tmp_path):
    """A mount point without its mount is an empty folder; the template's base is what must be there."""
    share = tmp_path / "share"
    with mounted(share, "size=8m"):
        (share / "vms").mkdir()
        assert vm.teardown("--increment", to=f"{share}/vms/{{node}}")[0] == 0
    vm.record(4, hours=3)
    code, said = vm.teardown(to=f"{share}/vms/{{node}}")
    assert code == 3
    assert said["troubles"] == [
        f"save.to: {share}/vms/web1 is not a folder here: make it, or mount what belongs there"
    ]
    assert list(share.iterdir()) == []
    assert everything(vm, vm.waiting) == list(range(43, 47))


def test_nowhere_to_wait(vm, tmp_path):
    vm.waiting.rmdir()
    code, said = vm.teardown(to=str(tmp_path / "gone"))
    assert (code, said["waiting"]) == (3, [])
    assert len(said["troubles"]) == 2
    assert said["troubles"][1] == f"save.waiting: {vm.waiting} is not a folder here: make it"


def test_no_archive_is_told_in_one_line(vm, tmp_path):
    vm.configure(str(tmp_path))
    done = vm.run("teardown", "--archive", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (3, "")
    assert all(line.startswith("vmsonar") for line in done.stderr.splitlines())
    assert f"{tmp_path}/none" in done.stderr


def start(vm: Vm, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(vm.command(*words), env=vm.environment, stdout=subprocess.PIPE)


def test_two_at_once_take_turns(vm, tmp_path):
    target = tmp_path / "results"
    target.mkdir()
    vm.configure(str(target))
    both = [start(vm, "teardown", "--json") for _ in range(2)]
    said = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(len(one["delivered"]) for one in said) == [0, 1]
    assert everything(vm, target) == list(range(2, 42))


def test_one_that_hangs_does_not_keep_the_other_from_saving(vm, tmp_path):
    """What a shutdown finds when an increment is stuck: it goes to the disk, and nobody says that all is well."""
    target = tmp_path / "results"
    target.mkdir()
    with teardown_lock(vm.archive, 0) as is_ours:
        assert is_ours
        begin = time.monotonic()
        code, said = vm.teardown("--limit", "5s", to=str(target))
        assert time.monotonic() - begin < 5 * 5
        assert code == 3
        assert said["troubles"] == [
            "another teardown of this archive is still at work: wait for it, then run this again"
        ]
        assert everything(vm, vm.waiting) == list(range(2, 42))
        assert vm.teardown("--increment", "--limit", "2s", to=str(target))[0] == 3
    assert vm.teardown("--resume", to=str(target))[0] == 0
    assert everything(vm, target) == list(range(2, 42))


def test_beside_a_bundle_that_is_being_made(vm, tmp_path):
    """Whoever reads the archive does not lock anybody out: here a bundle whose reader has stopped reading."""
    target = tmp_path / "results"
    target.mkdir()
    vm.record(200, hours=4)
    vm.configure(str(target))
    read, write = os.pipe()
    with subprocess.Popen(vm.command("bundle", "-o", "-"), stdout=write, env=vm.environment) as bundle:
        os.close(write)
        first = os.read(read, 1)
        assert vm.teardown(to=str(target))[0] == 0
        rest = []
        reader = threading.Thread(target=lambda: rest.extend(iter(lambda: os.read(read, 65536), b"")))
        reader.start()
        assert bundle.wait(60) == 0
        reader.join()
    os.close(read)
    (tmp_path / "whole.tar").write_bytes(first + b"".join(rest))
    assert vm.numbers(tmp_path / "whole.tar") == everything(vm, target)


def test_one_that_is_told_to_stop_ends_what_it_began(vm, store):
    """As by timeout(1): nothing goes on sending behind its back."""
    store.plan = ["wait"]
    vm.configure(f"https://localhost:{store.server_port}/bucket/{{time}}.tar")
    with start(vm, "teardown") as process:
        wait_until(lambda: store.requests, 60, "the upload")
        below = descendants(process.pid)
        assert below
        process.terminate()
        assert process.wait(30) not in (0, -15)
    wait_until(lambda: not any(is_alive(pid) for pid in below), 10, "the end of what it began")
    store.released.set()
    assert not (vm.archive / "uploads.json").exists()


def descendants(pid: int) -> list[int]:
    children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def is_alive(pid: int) -> bool:
    """A zombie waits for its parent, which may be nobody who cares."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_is_killed_leaves_nothing_half(vm, store):
    """Killed while it sends: the next one sends everything, once."""
    to = f"https://localhost:{store.server_port}/bucket/{{time}}.tar"
    store.plan = ["wait"]
    vm.configure(to)
    with start(vm, "teardown") as process:
        wait_until(lambda: store.requests, 60, "the upload")
        process.kill()
    store.released.set()
    assert vm.teardown(to=to)[0] == 0
    assert bundles(vm.waiting) == []
    (vm.root / "last.tar").write_bytes(list(store.stored.values())[-1])
    with open_archive(vm.root / "last.tar") as inside:
        assert [sample.seq for sample in inside.samples()] == list(range(2, 42))
