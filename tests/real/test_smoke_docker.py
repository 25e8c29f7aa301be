"""The Docker fixture works: containers run, can be seen, and are gone afterwards."""

import socket

from tests.parts import requires
from tests.real.docker import DockerEngine
from tests.real.podman import PodmanEngine


@requires("docker")
def test_a_container_runs_to_its_end(docker_engine: DockerEngine) -> None:
    assert docker_engine.run("echo", "hello") == "hello"


@requires("docker")
def test_a_container_in_the_background_is_seen_and_removed(docker_engine: DockerEngine) -> None:
    container = docker_engine.start("sleep", "600", options=("--memory", "64m"))
    assert len(container) == 64
    state = "{{.State.Running}} {{.HostConfig.Memory}}"
    assert docker_engine.docker("inspect", "--format", state, container) == "true 67108864"
    docker_engine.remove_all()
    assert docker_engine.docker("ps", "--all", "--quiet", "--filter", f"id={container}") == ""


@requires("podman")
def test_podman_runs_the_same_image_and_answers_as_docker(podman_engine: PodmanEngine) -> None:
    container = podman_engine.start("sleep", "600")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(podman_engine.socket))
        client.sendall(b"GET /v1.40/containers/json HTTP/1.0\r\n\r\n")
        answer = client.makefile("rb").read()
    assert container.encode() in answer
