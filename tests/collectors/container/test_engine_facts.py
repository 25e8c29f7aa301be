"""What is picked out of an engine's answers, and what never is."""

import msgspec
import pytest

from vmsonar.collectors.container.wire import ContainerFacts, engine_sockets, from_line
from vmsonar.collectors.protocol import to_line
from vmsonar.companion.facts import (
    bind_sources,
    command_of,
    exit_code_of,
    from_event,
    from_inspect,
    working_dir_of,
)
from vmsonar.companion.ownership import EngineClient, client_user, clients
from vmsonar.config.schema import DEFAULT_LABELS, Containers, allowed

A = "a" * 64
INSPECT = {
    "Id": A,
    "Created": "2026-11-16T04:24:18.123456789Z",
    "Path": "/usr/bin/python3",
    "Args": ["train.py", "--token", "hunter2"],
    "State": {"Pid": 4242, "StartedAt": "2026-11-16T04:24:19Z", "Running": True},
    "Image": "sha256:162ed",
    "Name": "/shop_web_1",
    "RestartCount": 2,
    "HostConfig": {"NetworkMode": "host", "Binds": ["/home/alice/data:/data"]},
    "Mounts": [
        {"Type": "bind", "Source": "/home/alice/data", "Destination": "/data"},
        {"Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v/_data"},
    ],
    "Config": {
        "Image": "registry/shop:1",
        "Env": ["PASSWORD=hunter2", "AWS_SECRET_ACCESS_KEY=hunter2"],
        "Cmd": ["--token", "hunter2"],
        "Labels": {
            "com.docker.compose.project": "shop",
            "com.docker.compose.service": "web",
            "com.docker.compose.project.working_dir": "/home/alice/shop",
            "deploy.token": "hunter2",
            "org.opencontainers.image.version": "1.2",
        },
    },
}


def test_the_listed_fields_and_no_others():
    assert from_inspect(INSPECT, "docker", DEFAULT_LABELS) == ContainerFacts(
        container_id=A,
        engine="docker",
        name="shop_web_1",
        image="registry/shop:1",
        image_digest="sha256:162ed",
        labels={
            "com.docker.compose.project": "shop",
            "com.docker.compose.service": "web",
            "org.opencontainers.image.version": "1.2",
        },
        compose_project="shop",
        compose_service="web",
        created="2026-11-16T04:24:18.123456789Z",
        started="2026-11-16T04:24:19Z",
        restart_count=2,
        network_mode="host",
        pid=4242,
    )


def test_secrets_do_not_cross_the_wire():
    facts = from_inspect(INSPECT, "docker", DEFAULT_LABELS)
    facts.command = command_of(INSPECT, "full")
    assert b"hunter2" not in to_line(facts)
    assert facts.command.startswith("/usr/bin/python3 train.py")


@pytest.mark.parametrize(("setting", "shown"), [("none", None), ("program", "python3 train.py")])
def test_the_command_follows_the_setting(setting, shown):
    assert command_of(INSPECT, setting) == shown


def test_an_event_alone_still_names_its_container():
    attributes = {
        "name": "short",
        "image": "busybox",
        "exitCode": "3",
        "com.docker.compose.project": "p",
        "x": "y",
    }
    facts = from_event(A, attributes, "docker", DEFAULT_LABELS)
    assert (facts.name, facts.image, facts.compose_project) == ("short", "busybox", "p")
    assert facts.labels == {"com.docker.compose.project": "p"}


@pytest.mark.parametrize("answer", [{"Id": A}, {"Id": A, "Config": None, "State": [], "Mounts": None}])
def test_an_answer_may_lack_anything_but_the_id(answer):
    assert from_inspect(answer, "podman", ()) == ContainerFacts(container_id=A, engine="podman")
    assert (working_dir_of(answer), bind_sources(answer)) == (None, [])


def test_paths_for_the_owner():
    assert working_dir_of(INSPECT) == "/home/alice/shop"
    assert bind_sources(INSPECT) == ["/home/alice/data"]


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"exitCode": "137"}, 137),
        ({"exitCode": "0"}, 0),
        ({"containerExitCode": "2"}, 2),
        ({"exitCode": "x"}, None),
        ({}, None),
    ],
)
def test_exit_codes(attributes, code):
    assert exit_code_of(attributes) == code


def test_labels_pass_by_the_list_only():
    labels = {"a": "1", "team.name": "2", "team.token": "3", "b": "x" * 5000}
    assert allowed(labels, ("team.name", "b")) == {"team.name": "2", "b": "x" * 1024}
    assert allowed(labels, ("team.*",)) == {"team.name": "2", "team.token": "3"}
    assert allowed(labels, ()) is None


def test_a_line_of_another_kind_is_passed_over():
    assert from_line(b'{"kind":"weather"}') is None
    assert from_line(b"\xff\x00") is None
    assert from_line(msgspec.json.encode({"kind": "gone", "container_id": A, "new": 1})).container_id == A


RUN = ("docker", "run", "busybox", "sleep", "9")
NAMED = ("docker", "run", "--name", "mine", "busybox")
UP = ("docker", "compose", "up")
CLIENTS = [
    ([EngineClient(1, 1000, RUN)], "x", "busybox", None, 1000),
    ([EngineClient(1, 1000, RUN)], "x", "alpine", None, None),
    ([EngineClient(1, 1000, RUN), EngineClient(2, 1001, RUN)], "x", "busybox", None, None),
    ([EngineClient(1, 1000, RUN), EngineClient(2, 1000, RUN)], "x", "busybox", None, 1000),
    ([EngineClient(1, 1000, RUN), EngineClient(2, 1001, NAMED)], "mine", "busybox", None, 1001),
    ([EngineClient(1, 1000, RUN), EngineClient(2, 1001, NAMED)], "x", "busybox", None, 1000),
    ([EngineClient(1, 1000, RUN), EngineClient(2, 1001, UP)], "shop_web_1", "busybox", "shop", 1001),
    ([EngineClient(1, 1001, ("docker", "run", "--name=mine", "busybox"))], "mine", "busybox", None, 1001),
    ([], "x", "busybox", None, None),
]


@pytest.mark.parametrize(("found", "name", "image", "project", "user"), CLIENTS)
def test_the_client_that_waits_tells_the_user(found, name, image, project, user):
    assert client_user(found, name, image, project) == user


def test_clients_are_found_by_their_command_and_told_by_their_login(tmp_path):
    for pid, comm, cmdline, login in (
        (10, "docker", "docker\0run\0busybox\0", "1000"),
        (11, "docker", "docker\0ps\0", "1000"),
        (12, "bash", "docker\0run\0busybox\0", "1000"),
        (13, "docker", "docker\0run\0-d\0busybox\0", "4294967295"),
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        for name, text in (("comm", f"{comm}\n"), ("cmdline", cmdline), ("loginuid", login)):
            (folder / name).write_text(text)
    own = tmp_path.stat().st_uid
    found = sorted(clients(tmp_path))
    assert [(client.pid, client.user) for client in found] == [(10, 1000), (13, own)]


def test_sockets_are_the_systems_and_ones_own(tmp_path):
    assert engine_sockets(Containers(), tmp_path, user=0) == [
        f"{tmp_path}/docker.sock",
        f"{tmp_path}/podman/podman.sock",
    ]
    assert engine_sockets(Containers(engine="podman"), tmp_path, user=7) == [
        f"{tmp_path}/podman/podman.sock",
        f"{tmp_path}/user/7/podman/podman.sock",
    ]
    assert engine_sockets(Containers(engine="none"), tmp_path) == []
    assert engine_sockets(Containers(socket="/x.sock"), tmp_path) == ["/x.sock"]
