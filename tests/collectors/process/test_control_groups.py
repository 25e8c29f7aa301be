"""The peak of a control group goes to the job that has it for itself, and to nobody else."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.collectors.process.recorder import recording
from tests.parts import requires
from tests.real.wait import wait_until
from vmsonar.collectors.process.control_groups import ControlGroups
from vmsonar.collectors.process.model import Identity, Job, Process
from vmsonar.host.cgroups import membership

MIB = 1 << 20
MINUTE = 60 * 10**9


@pytest.fixture
def groups(tmp_path: Path) -> Callable[..., Path]:
    """Makes a group of cgroup v2 with this peak."""

    def make(path: str, peak: int) -> Path:
        folder = tmp_path / "fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.peak").write_text(f"{peak}\n")
        return folder

    return make


def member(job: Job, pid: int, path: str) -> Process:
    process = Process(str(pid))
    process.identity = Identity(0, "root", "x", None, membership(f"0::{path}\n".encode()), None, 0, 0)
    job.join(process)
    return process


def job(pgid: int) -> Job:
    return Job(pgid, 0, "", is_shown=True)


def test_a_job_alone_in_its_group_has_the_peak_of_it(tmp_path: Path, groups: Callable[..., Path]) -> None:
    groups("system.slice/web.service", 70 * MIB)
    found, web = ControlGroups(tmp_path), job(10)
    for pid in (10, 11):
        found.note(member(web, pid, "/system.slice/web.service"))
    found.read([web], 1)
    assert web.group.get("memory_charged_peak") == 70 * MIB
    groups("system.slice/web.service", 90 * MIB)
    found.read([web], 2)
    assert web.group.get("memory_charged_peak") == 70 * MIB, "read again within the minute"
    found.read([web], MINUTE + 1)
    assert web.group.get("memory_charged_peak") == 90 * MIB
    groups("system.slice/web.service", 95 * MIB)
    web.members.clear()
    found.read([web], MINUTE + 2)
    assert web.group["memory_charged_peak"] == 95 * MIB


@pytest.mark.parametrize("paths", [("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a")])
def test_a_group_of_two_jobs_is_nobodys(
    tmp_path: Path, groups: Callable[..., Path], paths: list[str]
) -> None:
    for path in paths:
        groups(path[1:], MIB)
    found, jobs = ControlGroups(tmp_path), [job(10), job(11)]
    for one, path in zip(jobs, paths, strict=True):
        found.note(member(one, one.pgid, path))
        found.read(jobs[:1], 1)
    found.read(jobs, MINUTE + 1)
    charged = [one.group.get("memory_charged_peak") for one in jobs]
    assert charged == [MIB if len(path) > 2 else None for path in paths], "the inner one is alone"


def test_members_in_two_groups_the_root_and_other_namespaces_have_none(
    tmp_path: Path, groups: Callable[..., Path]
) -> None:
    for path in ("a", "b", "."):
        groups(path, MIB)
    found = ControlGroups(tmp_path)
    jobs = [job(10), job(11), job(12)]
    for one, path in ((jobs[0], "/a"), (jobs[0], "/b"), (jobs[1], "/"), (jobs[2], "/../a")):
        found.note(member(one, 100, path))
    found.read(jobs, 1)
    assert [one.group.get("memory_charged_peak") for one in jobs] == [None, None, None]


def test_a_new_group_of_an_old_name_is_another_one(tmp_path: Path, groups: Callable[..., Path]) -> None:
    folder = groups("web.service", 70 * MIB)
    found, before, after = ControlGroups(tmp_path), job(10), job(20)
    found.note(member(before, 10, "/web.service"))
    folder.rename(tmp_path / "removed")
    groups("web.service", 5 * MIB)
    found.note(member(after, 20, "/web.service"))
    found.read([after], 1)
    assert after.group.get("memory_charged_peak") == 5 * MIB


@contextmanager
def own_group() -> Iterator[Path]:
    root = Path("/sys/fs/cgroup")
    root = root / "memory" if (root / "memory/tasks").exists() else root
    folder = root / f"vmsonar-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), 10, "an empty group")
        folder.rmdir()


@requires("root")
def test_the_kernels_own_peak_has_the_cache_too(tmp_path: Path) -> None:
    code = f"data = b'1' * (80 << 20); open({str(tmp_path / 'file')!r}, 'wb').write(data); print(flush=True); input()"
    with own_group() as folder:
        leaf = next(
            folder / name for name in ("memory.peak", "memory.max_usage_in_bytes") if (folder / name).exists()
        )
        enter = f"open('{folder}/cgroup.procs', 'w').write('0')\n"
        with (
            recording() as records,
            subprocess.Popen(
                [sys.executable, "-c", enter + code],
                process_group=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            ) as process,
        ):  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()
            records.sample()
            row = records.job_rows(process.pid)[-1]
            truth = int(leaf.read_text())
            process.communicate(b"\n")
            assert records.job_rows(os.getpgrp())[-1].memory_charged_peak is None
    assert row.memory_charged_peak == pytest.approx(truth, rel=0.02)
    assert truth > 150 * MIB
    assert (row.memory_peak or 0) < 120 * MIB
