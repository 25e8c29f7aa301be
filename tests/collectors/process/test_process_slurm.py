"""A batch job's number, from the control group in a fixture tree to the rows of the job."""

import os
import shutil
from pathlib import Path

import pytest

from tests.collectors.process.kernel_text import IO, TAIL
from tests.collectors.process.recorder import recording
from tests.parts import requires
from vmsonar.collectors.process.jobs import Last
from vmsonar.host.roots import Host

V2 = "0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0\n"
V1 = "4:memory:/slurm/uid_1000/job_4242/step_0/task_0\n1:name=systemd:/system.slice\n"
NONE = "0::/user.slice/user-1000.slice/session-2.scope\n"


def add_process(proc: Path, pid: int, pgid: int, cgroup: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    stat = TAIL.replace(b"S 7 8 9", b"S 1 %d %d" % (pgid, pgid))
    (folder / "stat").write_bytes(b"%d (python3) %b" % (pid, stat))
    (folder / "schedstat").write_text("1000 10 5\n")
    (folder / "statm").write_text("765 355 300 5 0 123 0\n")
    (folder / "io").write_bytes(IO)
    (folder / "cgroup").write_text(cgroup)
    (folder / "cmdline").write_bytes(b"python3\0train.py\0")


@pytest.mark.parametrize(
    ("cgroup", "path"),
    [(V2, "/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0"), (V1, "/system.slice")],
    ids=["v2", "v1"],
)
def test_the_number_of_a_batch_job_becomes_the_jobs_id(tmp_path: Path, cgroup: str, path: str) -> None:
    proc, etc = tmp_path / "proc", tmp_path / "etc"
    proc.mkdir()
    etc.mkdir()
    (etc / "passwd").write_text("ann:x:1000:1000::/home/ann:/bin/sh\n")
    add_process(proc, 1, 1, "0::/init.scope\n")
    add_process(proc, 700, 700, cgroup)
    add_process(proc, 701, 700, cgroup)
    add_process(proc, 800, 800, NONE)
    with recording(host=Host(proc=proc, etc=etc)) as recorder:
        sample = recorder.sample()
    infos = {info.pgid: info for info in sample.job_info}
    assert (infos[700].job_id, infos[700].job_source) == ("4242", "slurm")
    assert (infos[800].job_id, infos[800].job_source) == ("800", "process_group")
    assert {row.pgid: row.processes for row in sample.job} == {1: 1, 700: 2, 800: 1}
    (step,) = [info for info in sample.process_info if info.pid == 701]
    assert step.cgroup == path


def described(tmp_path: Path, add) -> dict:
    """The info rows of jobs on a machine without control groups, by process group."""
    proc, etc = tmp_path / "proc", tmp_path / "etc"
    for folder in (proc, etc):
        folder.mkdir()
    add_process(proc, 1, 1, "0::/\n")
    add(proc)
    with recording(host=Host(proc=proc, etc=etc)) as recorder:
        sample = recorder.sample()
    return {
        info.pgid: (info.job_id, info.job_source, info.batch_step, info.batch_source)
        for info in sample.job_info
    }


def add_child(proc: Path, pid: int, parent: int, cgroup: str = "0::/\n") -> None:
    add_process(proc, pid, pid, cgroup)
    stat = proc / str(pid) / "stat"
    stat.write_bytes(stat.read_bytes().replace(b"S 1 ", b"S %d " % parent))


def add_step_daemon(proc: Path, pid: int, title: bytes, cgroup: str = "0::/\n") -> None:
    add_child(proc, pid, 1, cgroup)
    stat = proc / str(pid) / "stat"
    stat.write_bytes(stat.read_bytes().replace(b"(python3)", b"(slurmstepd)"))
    (proc / str(pid) / "cmdline").write_bytes(title + b"\0")


@requires("root")
def test_a_step_is_told_by_the_daemon_that_it_descends_from(tmp_path: Path) -> None:
    def add(proc: Path) -> None:
        add_step_daemon(proc, 600, b"slurmstepd: [4242.batch]")
        add_child(proc, 601, 600)
        add_child(proc, 602, 601)

    found = described(tmp_path, add)
    assert found[601] == found[602] == ("4242", "slurm", "batch", "ancestor")
    assert found[600] == ("600", "process_group", None, None)


@requires("root")
def test_a_daemon_that_was_seen_before_its_exec_names_its_step_all_the_same(tmp_path: Path) -> None:
    """Its child sleeps from its first sample on, so that nobody would look at it again for a minute."""
    proc, etc = tmp_path / "proc", tmp_path / "etc"
    for folder in (proc, etc):
        folder.mkdir()
    add_process(proc, 1, 1, "0::/\n")
    add_child(proc, 600, 1)
    stat = proc / "600" / "stat"
    stat.write_bytes(stat.read_bytes().replace(b"(python3)", b"(slurmd)"))
    with recording(host=Host(proc=proc, etc=etc)) as recorder:
        recorder.sample()
        stat.write_bytes(stat.read_bytes().replace(b"(slurmd)", b"(slurmstepd)"))
        (proc / "600" / "schedstat").write_text("2000 10 9\n")
        (proc / "600" / "cmdline").write_bytes(b"slurmstepd: [4242.batch]\0")
        add_child(proc, 601, 600)
        sample = recorder.sample()
    (info,) = [info for info in sample.job_info if info.pgid == 601][-1:]
    assert (info.job_id, info.batch_step, info.batch_source) == ("4242", "batch", "ancestor")


@requires("root")
def test_a_sluid_gets_its_number_from_the_daemon(tmp_path: Path) -> None:
    group = "0::/system.slice/slurmstepd.scope/sKH47TZ5X9J000/step_0"

    def add(proc: Path) -> None:
        add_step_daemon(proc, 600, b"slurmstepd: [4242.0]", f"{group}/slurm\n")
        add_child(proc, 601, 600, f"{group}/user/task_0\n")
        add_child(proc, 700, 1, f"{group}/user/task_1\n")
        add_child(proc, 800, 1, f"0::/system.slice/slurmstepd.scope/{OTHER}/step_0/user/task_0\n")

    found = described(tmp_path, add)
    # One that was adopted into the job descends from no daemon of it.
    assert found[601] == found[700] == ("4242", "slurm", "0", "cgroup")
    assert found[800] == (OTHER, "slurm", "0", "cgroup")


OTHER = "sKH47TZ5X9J001"


@requires("root")
def test_a_sluid_whose_daemon_came_later_gets_its_number_then(tmp_path: Path) -> None:
    group = "0::/system.slice/slurmstepd.scope/sKH47TZ5X9J000/step_0"
    proc, etc = tmp_path / "proc", tmp_path / "etc"
    for folder in (proc, etc):
        folder.mkdir()
    add_process(proc, 1, 1, "0::/\n")
    add_child(proc, 700, 1, f"{group}/user/task_1\n")
    with recording(host=Host(proc=proc, etc=etc)) as recorder:
        recorder.sample()
        add_step_daemon(proc, 600, b"slurmstepd: [4242.0]", f"{group}/slurm\n")
        recorder.sample()
        assert recorder.ticks[-1].batch_numbers == {"sKH47TZ5X9J000": "4242"}
        for later in range(100, 400, 100):
            recorder.sample(later=later)
        assert [(info.job_id, info.batch_task) for info in recorder.job_infos(700)] == [
            ("sKH47TZ5X9J000", 1),
            ("4242", 1),
        ]


@requires("root")
def test_an_orphan_of_a_job_keeps_it_when_the_recorder_starts_again(tmp_path: Path) -> None:
    proc, etc = tmp_path / "proc", tmp_path / "etc"
    for folder in (proc, etc):
        folder.mkdir()
    add_process(proc, 1, 1, "0::/\n")
    add_step_daemon(proc, 600, b"slurmstepd: [4242.batch]")
    add_child(proc, 601, 600)
    with recording(host=Host(proc=proc, etc=etc)) as before:
        before.sample()
    infos = {(row.pgid, row.start_ticks): row for row in before.samples[-1].job_info}
    shutil.rmtree(proc / "600")
    stat = proc / "601" / "stat"
    stat.write_bytes(stat.read_bytes().replace(b"S 600 ", b"S 1 "))
    add_child(proc, 602, 601)  # forked while nobody looked
    with recording(host=Host(proc=proc, etc=etc), last=Last(before.samples[-1], infos)) as after:
        after.sample()
        stat.write_bytes(stat.read_bytes().replace(b"(python3)", b"(another)"))
        (proc / "601" / "schedstat").write_text("2000 10 9\n")
        add_child(proc, 603, 601)
        after.sample()
    found = {pgid: after.job_infos(pgid)[-1] for pgid in (1, 601, 602, 603)}
    for pgid in (601, 602, 603):
        row = found[pgid]
        assert (row.job_id, row.job_source, row.batch_step) == ("4242", "slurm", "batch"), pgid
        assert row.batch_source == "ancestor"
    assert found[601].program == "another"  # described again by its exec
    assert found[1].job_source == "process_group"


@requires("root")
def test_who_calls_himself_a_step_daemon_is_none_unless_he_is_root(tmp_path: Path) -> None:
    def add(proc: Path) -> None:
        add_step_daemon(proc, 600, b"slurmstepd: [4242.0]")
        os.chown(proc / "600", 1000, 1000)
        add_child(proc, 601, 600)
        add_step_daemon(proc, 650, b"slurmstepd: [x;rm.0]")
        add_child(proc, 651, 650)

    found = described(tmp_path, add)
    assert found[601][1] == found[651][1] == "process_group"


@requires("root")
def test_who_calls_himself_a_step_daemon_leaves_no_job_by_it(tmp_path: Path) -> None:
    def add(proc: Path) -> None:
        add_step_daemon(proc, 600, b"slurmstepd: [4242.0]")
        add_child(proc, 601, 600)
        add_step_daemon(proc, 602, b"slurmstepd: [9.0]", V2)
        stat = proc / "602" / "stat"
        stat.write_bytes(stat.read_bytes().replace(b"S 1 ", b"S 601 "))
        os.chown(proc / "602", 1000, 1000)
        add_child(proc, 603, 602)

    found = described(tmp_path, add)
    assert found[602][:2] == found[603][:2] == ("4242", "slurm")
