"""Every form of /proc/PID/cgroup that an engine or a batch system makes."""

import pytest

from vmsonar.host.cgroups import container_path, controller_paths, membership

A = "a" * 64
B = "0123456789abcdef" * 4
USER = "/user.slice/user-1000.slice/user@1000.service"
POD = "kubepods-burstable-pod1f2e3d4c_0000_1111_2222_333344445555.slice"

FORMS = [
    # Docker
    (f"0::/docker/{A}", A, "docker", f"/docker/{A}"),
    (f"0::/system.slice/docker-{A}.scope", A, "docker", f"/system.slice/docker-{A}.scope"),
    (f"0::{USER}/user.slice/docker-{A}.scope", A, "docker", f"{USER}/user.slice/docker-{A}.scope"),
    (f"0::{USER}/app.slice/docker.service/docker/{A}", A, "docker", None),
    (f"0::/docker/{A}/init.scope", A, "docker", f"/docker/{A}"),
    (f"0::/batch/{A}", A, "unknown", f"/batch/{A}"),
    (f"0::/../../docker/{A}", A, "docker", f"/../../docker/{A}"),
    (f"0::/docker/{A} (deleted)", A, "docker", f"/docker/{A}"),
    # Podman
    (f"0::/machine.slice/libpod-{A}.scope", A, "podman", None),
    (f"0::/machine.slice/libpod-{A}.scope/container", A, "podman", f"/machine.slice/libpod-{A}.scope"),
    (f"0::{USER}/user.slice/libpod-payload-{A}", A, "podman", None),
    (f"0::{USER}/user.slice/libpod-{A}.scope/container", A, "podman", f"{USER}/user.slice/libpod-{A}.scope"),
    (f"1:name=systemd:/libpod_parent/libpod-{A}", A, "podman", f"/libpod_parent/libpod-{A}"),
    # Kubernetes
    (f"0::/kubepods/burstable/pod1f2e3d4c-0000/{A}", A, "unknown", None),
    (f"0::/kubepods.slice/{POD}/cri-containerd-{A}.scope", A, "containerd", None),
    (
        f"0::/kubepods.slice/{POD}/crio-{A}.scope/container",
        A,
        "crio",
        f"/kubepods.slice/{POD}/crio-{A}.scope",
    ),
    (f"0::/kubepods.slice/{POD}/docker-{A}.scope", A, "docker", None),
    (f"0::/system.slice/containerd.service/{POD}:cri-containerd:{A}", A, "containerd", None),
    # a container in a container: the innermost wins
    (f"0::/docker/{A}/docker/{B}", B, "docker", f"/docker/{A}/docker/{B}"),
    (f"0::/system.slice/docker-{A}.scope/kubepods/besteffort/podx/{B}", B, "unknown", None),
    (f"0::/docker/{A}/libpod_parent/libpod-{B}", B, "podman", None),
    # the monitor of a container is not in it, but may itself be in another
    (f"0::/docker/{A}/machine.slice/libpod-conmon-{B}.scope", A, "docker", f"/docker/{A}"),
]


@pytest.mark.parametrize(("text", "container_id", "engine", "path"), FORMS)
def test_a_container_is_told_by_the_path(text, container_id, engine, path):
    whole = text.split(":", 2)[2]
    assert membership(f"{text}\n".encode())[:4] == (container_id, engine, None, path or whole)


NONE = [
    "0::/",
    "0::/init.scope",
    f"0::{USER}/app.slice/app-gnome-firefox-1234.scope",
    f"0::/machine.slice/libpod-conmon-{A}.scope",
    f"0::/machine.slice/crio-conmon-{A}.scope",
    f"0::/docker/{A[:63]}",
    f"0::/docker/{A}0",
    f"0::/docker/{A.upper()}",
    "0::/system.slice/docker.service",
]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_container_is_none(text):
    assert membership(f"{text}\n".encode())[:4] == (None, None, None, text[3:])


SLUID = "sKH47TZ5X9J000"
STEPS = [
    ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_12/own", ("7", "0", None, 12)),
    ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_special", ("7", "0", None, None)),
    ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_1x", ("7", "0", None, None)),
    ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_1234567890", ("7", "0", None, None)),
    ("5:cpuset:/slurm/uid_1/job_7/step_0\n4:memory:/slurm/uid_1/job_7/step_0/task_3", ("7", "0", None, 3)),
    ("0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0", ("4242", "0", None, 0)),
    ("0::/system.slice/node7_slurmstepd.scope/job_4242/step_batch", ("4242", "batch", None, None)),
    ("4:memory:/slurm/uid_1000/job_77/step_0/task_0", ("77", "0", None, 0)),
    ("4:memory:/slurm_node7/uid_1000/job_77/step_batch\n0::/", ("77", "batch", None, None)),
    ("4:memory:/slurm/uid_1000/job_77\n0::/", ("77", None, None, None)),
    (f"0::/system.slice/slurmstepd.scope/{SLUID}/step_extern/user/task_0", (None, "extern", SLUID, 0)),
    ("0::/system.slice/slurmstepd.scope/job_7/step_batch/slurm", None),
    ("0::/system.slice/slurmstepd.scope/system", None),
    ("0::/user.slice/job_5", None),
    ("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_5/step_0", None),
    ("0::/user.slice/user-1000.slice/user@1000.service/slurm/uid_1/job_5", None),
    ("0::/slurm/job_x", None),
    ("0::/slurm/uid_0/job_12345678901/step_0", None),
    ("0::/slurm/uid_0/job_5;rm/step_0", None),
    ("0::/slurm/uid_0/job_5/step_../task_0", ("5", None, None, None)),
]


@pytest.mark.parametrize(("text", "step"), STEPS)
def test_the_step_of_a_batch_job_is_told_by_the_path(text, step):
    batch = membership(f"{text}\n".encode()).batch
    assert (None if batch is None else (*batch[:3], batch.task)) == step


def test_a_container_in_a_batch_job_has_both():
    found = membership(
        f"0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0/libpod-{A}.scope\n".encode()
    )
    assert (found.container_id, found.engine, found.batch and found.batch.job) == (A, "podman", "9")


POD = "pod0f9c0c2b_5b1e_4c7e_8a4e_3d1f0a9b8c7d"
UNITS = [
    ("0::/system.slice/cron.service", [("service", "/system.slice/cron.service")]),
    ("0::/system.slice/cron.service/sub/group", [("service", "/system.slice/cron.service")]),
    ("0::/init.scope", [("scope", "/init.scope")]),
    (
        "0::/user.slice/user-1000.slice/session-3.scope",
        [("session", "/user.slice/user-1000.slice/session-3.scope")],
    ),
    (
        "0::/user.slice/user-7.slice/user@7.service/app.slice/x.service",
        [("service", "/user.slice/user-7.slice/user@7.service/app.slice/x.service")],
    ),
    (
        "0::/system.slice/slurmstepd.scope/job_4/step_0/user/task_0",
        [
            ("slurm", "/system.slice/slurmstepd.scope/job_4/step_0"),
            ("slurm", "/system.slice/slurmstepd.scope/job_4"),
        ],
    ),
    (
        "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_5",
        [("scope", "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope")],
    ),
    ("5:memory:/slurm/uid_1/job_4\n1:name=systemd:/", [("slurm", "/slurm/uid_1/job_4")]),
    (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{POD}.slice/cri-containerd-{A}.scope",
        [("pod", f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{POD}.slice")],
    ),
    (
        f"0::/kubepods/besteffort/{POD.replace('_', '-')}/{A}",
        [("pod", f"/kubepods/besteffort/{POD.replace('_', '-')}")],
    ),
    (f"0::/system.slice/docker-{A}.scope", []),
    ("0::/", []),
    ("0::/a\\x20b.service\x1b[31m", []),
]


@pytest.mark.parametrize(("text", "units"), UNITS)
def test_the_units_that_a_process_is_in(text, units):
    assert list(membership(f"{text}\n".encode()).units) == units


def test_v1_and_hybrid_hosts_are_told_by_whichever_controller_knows():
    text = f"9:name=systemd:/docker/{A}\n4:memory:/docker/{A}\n2:cpu,cpuacct:/docker/{A}\n0::/\n".encode()
    assert membership(text)[:4] == (A, "docker", None, f"/docker/{A}")
    moved = f"9:name=systemd:/\n4:memory:/docker/{A}/docker/{B}\n2:cpu:/docker/{A}\n0::/\n".encode()
    assert membership(moved).container_id == B


def test_without_a_container_the_path_is_that_of_systemd():
    assert membership(b"9:name=systemd:/user.slice\n4:memory:/\n0::/\n").path == "/user.slice"
    assert membership(b"9:name=systemd:/a\n0::/b\n").path == "/b"


def test_controllers_mounted_together_share_a_path():
    assert controller_paths(b"2:cpu,cpuacct:/a\n1:name=systemd:/c:d\n0::/b\n") == {
        "cpu": "/a",
        "cpuacct": "/a",
        "name=systemd": "/c:d",
        "": "/b",
    }


def test_a_path_is_cut_at_the_container_asked_for():
    path = f"/docker/{A}/docker/{B}/init.scope"
    assert container_path(path, A) == f"/docker/{A}"
    assert container_path(path, B) == f"/docker/{A}/docker/{B}"
    assert container_path("/", A) is None


@pytest.mark.parametrize("text", [b"", b"\n", b"garbage", b"0:", b"\xff\xfe::\xff", b"0::" + b"/" * 5000])
def test_nonsense_is_no_container(text):
    assert membership(text).container_id is None
