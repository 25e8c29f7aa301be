"""A batch job's number, from the control group in a fixture tree to the rows of the job."""

from pathlib import Path

import pytest

from tests.collectors.process.kernel_text import IO, TAIL
from tests.collectors.process.recorder import recording
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
