"""A teardown is done only when everything is forwarded as well: over HTTP and to Kafka, by hand and on notice."""

import subprocess
from collections.abc import Iterator
from io import StringIO

import pytest

from tests.forward.http_server import Endpoint
from tests.forward.making import consume, kafka_config, seqs_of
from tests.lifecycle.test_notice import Cloud, cloud
from tests.lifecycle.vm import Vm, bundles
from tests.parts import requires
from tests.real.wait import wait_until
from vmsonar.lifecycle.clouds import Metadata
from vmsonar.log import Log
from vmsonar.notice import Watcher, tear_down_with

__all__ = ["cloud"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def over_http(vm: Vm, endpoint: Endpoint) -> dict:
    return {"to": "http", "cluster": "c", "url": endpoint.url, "state": str(vm.root / "state")}


def taken(endpoint: Endpoint) -> list[int]:
    return [int(one["headers"]["seq"]) for one in endpoint.records if one["topic"] == "c.sample"]


def test_over_http_and_nothing_twice(vm, endpoint):
    code, said = vm.teardown(to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"], said["troubles"]) == (0, True, [])
    assert taken(endpoint) == seqs_of(vm.archive)
    assert len(bundles(vm.waiting)) == 1
    assert vm.teardown(to=None, forward=over_http(vm, endpoint))[0] == 0
    assert len(taken(endpoint)) == len(set(taken(endpoint)))


def test_the_forwarder_that_runs_already_is_waited_for(vm, endpoint):
    vm.configure(None, forward=over_http(vm, endpoint))
    with subprocess.Popen(vm.command("forward"), stderr=subprocess.DEVNULL) as forwarder:
        try:
            wait_until(lambda: taken(endpoint), 60, "the first records")
            vm.record(4, hours=3)
            code, said = vm.teardown(to=None, forward=over_http(vm, endpoint))
            assert (code, said["forwarded"]) == (0, True)
            assert taken(endpoint) == seqs_of(vm.archive)
        finally:
            forwarder.terminate()


def test_a_safe_bundle_is_not_enough(vm, endpoint):
    endpoint.answers = [503]
    code, said = vm.teardown("--limit", "4s", to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"], said["troubles"]) == (3, False, [])
    assert vm.numbers(*bundles(vm.waiting)) == list(range(2, 42))
    endpoint.answers = [200]
    assert vm.teardown(to=None, forward=over_http(vm, endpoint))[0] == 0
    assert taken(endpoint) == seqs_of(vm.archive)


@requires("kafka", "kcat")
def test_to_kafka(vm, kafka_broker):
    forward = kafka_config(kafka_broker, "teardown.example", state=str(vm.root / "state"))
    code, said = vm.teardown(to=None, forward=forward)
    assert (code, said["forwarded"]) == (0, True)
    messages = consume(kafka_broker, "teardown.example.sample")
    assert [int(message["seq"]) for message in messages] == seqs_of(vm.archive)


def on_notice(vm: Vm, cloud: Cloud, seconds: float = 22) -> str:
    """What is logged when the cloud says that the VM will go, and how long may be taken for it."""
    said = StringIO()
    service = Metadata(cloud.server_address[:2])
    tear_down = tear_down_with(vm.root / "config.yaml")
    watcher = Watcher("gcp", lambda _: tear_down(seconds), Log("info", said), vm.root, service)
    cloud.ends = True
    watcher.look()
    return said.getvalue()


def test_on_notice_over_http(vm, endpoint, cloud):
    vm.configure(None, forward=over_http(vm, endpoint))
    assert "everything is safe" in on_notice(vm, cloud)
    assert taken(endpoint) == seqs_of(vm.archive)
    assert len(bundles(vm.waiting)) == 1


def test_on_notice_what_is_not_forwarded_is_not_called_safe(vm, endpoint, cloud):
    endpoint.close()
    vm.configure(None, forward=over_http(vm, endpoint))
    said = on_notice(vm, cloud, seconds=5)
    assert "ended with exit code 3: trying again" in said
    assert "everything is safe" not in said


@requires("kafka", "kcat")
def test_on_notice_to_kafka(vm, kafka_broker, cloud):
    vm.configure(None, forward=kafka_config(kafka_broker, "notice.example", state=str(vm.root / "state")))
    assert "everything is safe" in on_notice(vm, cloud)
    messages = consume(kafka_broker, "notice.example.sample")
    assert [int(message["seq"]) for message in messages] == seqs_of(vm.archive)
