"""A real engine, containers whose truth the test knows, and what was recorded of them."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive

from tests.collectors.container.recording import Recording
from tests.parts import DOCKER_SOCKET, requires
from tests.real.docker import IMAGE
from tests.real.wait import wait_until

pytestmark = requires("docker")


@pytest.fixture
def recording(tmp_path, docker_engine):
    made = Recording(tmp_path, [DOCKER_SOCKET])
    made.until(lambda: made.collector.describe().get("engines"))
    yield made
    made.close()


@pytest.fixture
def gate(tmp_path):
    """A folder for containers, with a pipe in it: who reads it waits until the test opens it."""
    folder = tmp_path / "gate"
    folder.mkdir()
    os.mkfifo(folder / "go")
    return folder


def burnt_seconds(text):
    """What `time -p` says."""
    return sum(float(word) for word in re.findall(r"(?:user|sys) ([\d.]+)", text))


def logs(engine, container_id):
    """What it wrote to its standard error."""
    done = subprocess.run([engine.command, "logs", container_id], capture_output=True, text=True, check=True)
    return done.stderr


def throttled_disk(folder):
    """The disk below a folder, and a limit that is none: newer kernels count v1 only where there is a rule."""
    device = os.stat(folder).st_dev
    found = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    disk = found if (found / "queue").is_dir() else found.parent
    if not (disk / "dev").exists():
        pytest.skip(f"{folder} lies on no block device")
    major, _, minor = (disk / "dev").read_text().strip().partition(":")
    return (int(major), int(minor)), ("--device-write-bps", f"/dev/{disk.name}:100gb")


def open_gate(gate):
    (gate / "go").write_text("go\n")


@pytest.fixture
def start(docker_engine):
    started = []

    def run(*command, options=()):
        started.append(docker_engine.start(*command, options=options))
        return started[-1]

    yield run
    docker_engine.remove(*started)


def uses_nothing(recording, container_id):
    before = recording.rows[container_id].cpu_time
    recording.sample()
    return recording.rows[container_id].cpu_time == before


def test_cpu_time_is_what_was_burnt(recording, docker_engine, start, gate):
    burn = "cat /t/go; busybox time -p timeout 2 sh -c 'while :; do :; done'; cat /t/go"
    container_id = start("sh", "-c", burn, options=("--volume", f"{gate}:/t"))
    recording.until(lambda: container_id in recording.rows)
    wait_until(lambda: uses_nothing(recording, container_id), 20, "waiting for the gate")
    before = recording.rows[container_id]
    open_gate(gate)
    recording.until(lambda: "sys" in logs(docker_engine, container_id))
    burnt = sum(
        float(word) for word in re.findall(r"(?:user|sys) ([\d.]+)", logs(docker_engine, container_id))
    )
    recording.sample()
    after = recording.rows[container_id]
    assert (after.cpu_time - before.cpu_time) / 1e9 == pytest.approx(burnt, rel=0.02, abs=0.02)
    parts = after.cpu_user_time + after.cpu_system_time
    assert parts == pytest.approx(after.cpu_time, rel=0.1)
    open_gate(gate)
    recording.until(lambda: recording.event(container_id, "container_die"))
    died = recording.event(container_id, "container_die")
    assert (died.exit_code, died.cpu_time) == (0, recording.rows[container_id].cpu_time)
    assert died.cpu_time >= after.cpu_time


def test_memory_is_what_was_allocated(recording, start):
    size = 64 * 2**20
    container_id = start(
        "sh", "-c", f"head -c {size} /dev/zero | tail -c {size} | sleep 60", options=("-m", "256m")
    )
    recording.until(
        lambda: (
            container_id in recording.rows and recording.rows[container_id].memory_anonymous >= size * 0.99
        )
    )
    row = recording.rows[container_id]
    assert row.memory_anonymous == pytest.approx(size, rel=0.05)
    assert row.memory_used >= row.memory_anonymous
    assert (row.memory_limit, row.memory_unlimited) == (256 * 2**20, False)


def test_an_oom_kill_is_counted_and_told(recording, start):
    limit = 32 * 2**20
    hungry = "head -c 200000000 /dev/zero | tail -c 200000000 | sleep 1; exit 5"
    container_id = start("sh", "-c", hungry, options=("-m", "32m", "--memory-swap", "32m"))
    recording.until(lambda: recording.event(container_id, "container_die"))
    row = recording.rows[container_id]
    assert recording.event(container_id, "container_oom")
    assert row.oom_kills >= 1
    assert row.memory_peak == pytest.approx(limit, rel=0.05)
    # The kernel picks its victim: mostly the hungry one, sometimes the shell that would have said 5.
    assert recording.event(container_id, "container_die").exit_code in (5, 137)


def test_written_bytes_are_counted_per_device(recording, start, gate):
    size = 32 * 2**20
    disk, rule = throttled_disk(gate)
    write = "dd if=/dev/zero of=/t/file bs=1M count=32 oflag=direct; cat /t/go"
    container_id = start("sh", "-c", write, options=("--volume", f"{gate}:/t", *rule))
    recording.until(
        lambda: container_id in recording.rows and (recording.rows[container_id].write_bytes or 0) >= size
    )
    row = recording.rows[container_id]
    assert row.write_bytes == pytest.approx(size, rel=0.01)
    (on_disk,) = [each for each in row.devices if (each.device_major, each.device_minor) == disk]
    assert on_disk.write_bytes == pytest.approx(size, rel=0.01)
    assert on_disk.writes >= 32
    open_gate(gate)


def test_the_hosts_network_is_shared_and_a_containers_own_is_not(recording, start):
    on_host = start("sleep", "60", options=("--network", "host"))
    own = start("sleep", "60")
    recording.until(lambda: {on_host, own} <= recording.rows.keys())
    assert recording.rows[on_host].network_shared is True
    assert recording.rows[own].network_shared is False
    assert recording.rows[own].network_namespace != recording.rows[on_host].network_namespace
    assert recording.infos[on_host].network_mode == "host"


def test_a_container_shorter_than_any_interval_is_found_and_named(recording, docker_engine):
    """It lives 0.3 s, between two samples; its CPU is exact."""
    name = f"short-{time.time_ns()}"
    burn = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; sleep 0.2"
    options = ("--rm", "--name", name, "--label", docker_engine.label)
    command = ("sh", "-c", f"busybox time -p sh -c '{burn}'; exit 3")
    done = subprocess.run(
        [docker_engine.command, "run", *options, IMAGE, *command], capture_output=True, check=False
    )
    burnt = burnt_seconds(done.stderr.decode())

    def died():
        info = recording.by_name(name)
        return info and recording.event(info.container_id, "container_die")

    recording.until(died)
    info = recording.by_name(name)
    assert recording.events_of(info.container_id) == ["container_create", "container_start", "container_die"]
    assert died().exit_code == 3
    assert (info.image, info.command) == (IMAGE, "sh")
    # On a machine that is overloaded the last reading may come too late: then there is none, never a wrong one.
    # What the engine spends in the container before its first process is in it too.
    if died().cpu_time is not None or os.getloadavg()[0] < 2 * os.cpu_count():
        assert burnt - 0.01 <= died().cpu_time / 1e9 <= burnt + 0.15
        assert recording.rows[info.container_id].cpu_time == died().cpu_time


def test_a_compose_like_pair_has_its_labels_and_no_others(recording, start):
    project = ("--label", "com.docker.compose.project=shop", "--label", "internal.token=hunter2")
    secret = ("--env", "PASSWORD=hunter2")
    ids = [
        start("sleep", "60", options=(*project, *secret, "--label", f"com.docker.compose.service={service}"))
        for service in ("web", "db")
    ]
    recording.until(lambda: all(recording.infos.get(name) and recording.infos[name].name for name in ids))
    infos = [recording.infos[name] for name in ids]
    assert [(info.compose_project, info.compose_service) for info in infos] == [
        ("shop", "web"),
        ("shop", "db"),
    ]
    assert infos[0].labels == {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
    assert infos[0].image_digest.startswith("sha256:")
    assert infos[0].created <= infos[0].started
    assert b"hunter2" not in recording.raw


def test_a_container_in_a_container_is_found_by_the_innermost_id(recording, docker_engine, start):
    outer = start("sleep", "60")
    path = (
        f"/docker/{outer}"
        if docker_engine.docker("info", "--format", "{{.CgroupDriver}}") == "cgroupfs"
        else ""
    )
    if not path:
        pytest.skip("only the cgroupfs driver takes a path as a parent")
    inner = start("sleep", "60", options=("--cgroup-parent", path, "--network", f"container:{outer}"))
    recording.until(lambda: recording.infos.get(inner) and recording.infos[inner].name)
    assert recording.infos[inner].cgroup == f"/docker/{outer}/{inner}"
    assert recording.infos[outer].cgroup == f"/docker/{outer}"
    assert recording.infos[inner].name != recording.infos[outer].name
    # the group of the outer one counts the inner one too, as the kernel has it
    assert recording.rows[outer].cpu_time >= recording.rows[inner].cpu_time
    assert (recording.rows[outer].network_shared, recording.rows[inner].network_shared) == (False, True)


def test_health_is_told(recording, start):
    check = ("--health-cmd", "true", "--health-interval", "200ms")
    container_id = start("sleep", "60", options=check)
    recording.until(lambda: recording.event(container_id, "container_health"))
    assert recording.event(container_id, "container_health").detail == "healthy"


def test_a_restart_is_the_same_container(recording, docker_engine, start):
    container_id = start("sleep", "60")
    recording.until(lambda: container_id in recording.rows)
    docker_engine.docker("restart", "--time", "0", container_id)
    recording.until(lambda: recording.events_of(container_id).count("container_start") == 2)
    recording.sample()
    assert recording.events_of(container_id) == [
        "container_create", "container_start", "container_die", "container_start",
    ]  # fmt: skip
    assert recording.rows[container_id].processes == 1


def test_what_ran_before_the_recording_is_named_too(tmp_path, docker_engine, start):
    container_id = start("sleep", "60", options=("--name", f"before-{time.time_ns()}"))
    recording = Recording(tmp_path, [DOCKER_SOCKET])
    recording.until(lambda: recording.infos.get(container_id) and recording.infos[container_id].name)
    assert recording.infos[container_id].name.startswith("before-")
    assert recording.events_of(container_id) == []
    recording.close()


def test_a_single_sample_waits_for_the_names(tmp_path, start):
    container_id = start("sleep", "60")
    recording = Recording(tmp_path, [DOCKER_SOCKET])
    recording.collector.settle(30)
    recording.sample()
    assert recording.infos[container_id].name
    recording.close()


def test_every_process_and_job_says_its_container(tmp_path, start):
    container_id = start("sh", "-c", "sleep 60; true")
    archive = tmp_path / "archive"
    subprocess.run([sys.executable, "-m", "vmsonar", "sample", "--archive", str(archive)], check=True)
    with open_archive(archive) as opened:
        (sample,) = opened.samples()
    pids = {row.pid for row in sample.process_info if row.container_id == container_id}
    names = {row.program for row in sample.process_info if row.pid in pids}
    assert names == {"sh", "sleep"}
    assert [row.program for row in sample.job_info if row.container_id == container_id] == ["sh"]
    assert [row.name for row in sample.container_info if row.container_id == container_id] != [None]
