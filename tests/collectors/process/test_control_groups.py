"""The peak of a control group goes to the job that has it for itself, and to nobody else."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.records import JobRow

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


def test_a_service_that_was_seen_before_it_made_its_own_job_keeps_its_group(
    tmp_path: Path, groups: Callable[..., Path]
) -> None:
    """Its manager puts it there while it is still of the manager's process group."""
    path = "/system.slice/web.service"
    groups(path[1:], 70 * MIB)
    found, manager, web = ControlGroups(tmp_path), job(1), job(10)
    found.note(member(manager, 1, "/init.scope"))
    process = member(manager, 10, path)
    found.note(process)
    manager.leave(process)
    web.join(process)
    found.note(process)
    found.note(member(web, 11, path))
    found.read([manager, web], 1)
    assert web.group.get("memory_charged_peak") == 70 * MIB
    found.note(member(manager, 12, path))
    found.read([web], MINUTE + 1)
    assert "memory_charged_peak" not in web.group


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


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


V2 = {
    "memory__max": "67108864\n",
    "memory__events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n",
    "pids__max": "5\n",
    "pids__events": "max 3\n",
    "cpu__stat": "usage_usec 9\nnr_periods 8\nnr_throttled 4\nthrottled_usec 5\n",
}
TOLD = {
    "memory_limit": 64 * MIB, "memory_max_events": 7, "oom_kills": 1, "pids_limit": 5, "pids_max_events": 3,
    "throttled_periods": 4, "throttled_time": 5000,
}  # fmt: skip


def test_what_a_group_counts_is_in_the_row_of_its_job(tmp_path: Path) -> None:
    write(tmp_path / "fs/cgroup/a", **V2)
    found, one = ControlGroups(tmp_path), job(10)
    found.note(member(one, 10, "/a"))
    found.read([one], 1)
    assert one.group == TOLD
    row = msgspec.json.decode(one.encode(), type=JobRow)
    assert {name: getattr(row, name) for name in TOLD} == TOLD


def test_a_job_that_did_not_run_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "fs/cgroup/a"
    write(folder, **V2)
    found, one = ControlGroups(tmp_path), job(10)
    found.note(member(one, 10, "/a"))
    found.read([one], 1)
    one.encode()
    write(folder, pids__events="max 4\n", pids__max="6\n")
    found.read([one], 2)
    assert one.group == TOLD
    one.is_dirty = True
    found.read([one], 3)
    assert one.group == TOLD | {"pids_max_events": 4}, "the limit is read once a minute"


def test_hierarchies_of_v1_are_told_apart(tmp_path: Path) -> None:
    root = tmp_path / "fs/cgroup"
    for name in ("memory", "pids", "cpu"):
        write(root / name, tasks="")
    unlimited = str((1 << 63) - 4096)
    write(
        root / "memory/a",
        memory__limit_in_bytes=unlimited, memory__failcnt="0\n", memory__max_usage_in_bytes="9\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )  # fmt: skip
    write(root / "pids/b", pids__events="max 3\n", pids__max="max\n")
    found, jobs = ControlGroups(tmp_path), [job(10), job(11)]
    for one, path in zip(jobs, ("/a", "/"), strict=True):
        process = member(one, one.pgid, "/")
        text = f"3:pids:/b\n2:memory:{path}\n1:cpu:/\n0::/\n".encode()
        process.identity = Identity(0, "root", "x", None, membership(text), None, 0, 0)
        found.note(process)
    found.read(jobs, 1)
    known = {name: value for name, value in jobs[0].group.items() if value is not None}
    assert known == {"memory_charged_peak": 9, "oom_kills": 2}, "both are in one group of pids"
    assert jobs[1].group == {}


def test_a_job_that_moves_as_a_whole_has_the_group_it_is_in(tmp_path: Path) -> None:
    for path in ("a", "b"):
        write(tmp_path / "fs/cgroup" / path, **V2 | ({} if path == "a" else {"pids__events": "max 0\n"}))
    found, one = ControlGroups(tmp_path), job(10)
    process = member(one, 10, "/a")
    found.note(process)
    found.read([one], 1)
    process.identity = Identity(0, "root", "x", None, membership(b"0::/b\n"), None, 0, 0)
    found.note(process)
    found.read([one], 2)
    assert one.group == TOLD | {"pids_max_events": 0}
