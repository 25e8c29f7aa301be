"""A teardown is done only when everything is forwarded as well: over HTTP and to Kafka, by hand and on notice."""

import json
import subprocess
import time
from collections.abc import Iterator
from io import StringIO

import psutil
import pytest
from vmsonar_archive.records import SysInfo
from vmsonar_archive.write.lock import WriterLock

from tests.forward.http_server import Endpoint
from tests.forward.place import consume, kafka_config, seqs_of
from tests.lifecycle.metadata_service import Cloud
from tests.lifecycle.vm import Vm, bundles
from tests.making.bundles import BOOT, START, open_writer
from tests.parts import requires
from tests.real import hostile_http
from tests.real.wait import wait_until
from vmsonar.config.file import load_config
from vmsonar.config.shipping import Forward, Tls
from vmsonar.daemon.log import Log
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.state import read_cursor, read_status, write_cursor
from vmsonar.lifecycle.notice import Metadata, Watcher, tear_down_with
from vmsonar.lifecycle.step import Saved
from vmsonar.lifecycle.teardown import Forwarding

pytestmark = pytest.mark.slow


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


def test_what_another_receiver_has_is_not_forwarded(vm, endpoint):
    other = Endpoint()
    vm.configure(None, forward=over_http(vm, endpoint))
    beside = vm.command("forward", "--once", "--to", f"otlp+{other.url}")
    assert subprocess.run(beside, check=False).returncode == 0
    assert other.taken
    code, said = vm.teardown(to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"]) == (0, True)
    assert taken(endpoint) == seqs_of(vm.archive)

    before = len(other.taken)
    code, said = vm.teardown(to=None, forward=over_http(vm, other))
    assert (code, said["forwarded"]) == (3, False)
    assert len(other.taken) == before
    refused = subprocess.run(vm.command("forward", "--once"), capture_output=True, text=True, check=False)
    assert refused.returncode == 3
    assert f"is of http {endpoint.url}" in refused.stderr
    assert "give forward.state another folder" in refused.stderr
    elsewhere = {**over_http(vm, other), "state": str(vm.root / "elsewhere")}
    code, said = vm.teardown(to=None, forward=elsewhere)
    assert (code, said["forwarded"]) == (0, True)
    other.taken = other.taken[before:]
    assert taken(other) == seqs_of(vm.archive)
    other.close()


def test_a_cursor_that_names_no_receiver_and_brokers_of_one_cluster(vm, endpoint):
    """Earlier versions did not write whose cursor it was."""
    vm.configure(None, forward=over_http(vm, endpoint))
    assert subprocess.run(vm.command("forward", "--once"), check=False).returncode == 0
    cursor = read_cursor(vm.root / "state", print)
    assert cursor.destination == f"http {endpoint.url}"
    cursor.destination = ""
    write_cursor(vm.root / "state", cursor)
    sent = len(endpoint.taken)
    assert subprocess.run(vm.command("forward", "--once"), check=False).returncode == 0
    assert len(endpoint.taken) == sent
    assert read_cursor(vm.root / "state", print).destination == f"http {endpoint.url}"
    plan = ForwardPlan(Forward(cluster="c", brokers=["new:9092", "kept:9092"], tls=Tls(use="none")))
    assert plan.is_of("kafka kept:9092,old:9092")
    assert not plan.is_of("kafka old:9092")
    assert not plan.is_of("http kept:9092")


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


def test_what_a_forwarder_said_before_is_not_believed(vm, endpoint):
    """It said that all was sent, and hangs since: the description of the machine that came later is not sent."""
    config = vm.configure(None, forward=over_http(vm, endpoint))
    assert subprocess.run(vm.command("forward", "--once"), check=False).returncode == 0
    writer = open_writer(vm.archive)
    writer.append_sysinfo(SysInfo(time=START, seq=0, run="", boot=BOOT, boottime=1, cpus=3))
    writer.close()
    lock = WriterLock(vm.root / "state")
    try:
        saved = Saved()
        Forwarding(vm.archive, config, load_config(config).forward, 1.0).tell(saved)
        assert not saved.forwarded
    finally:
        lock.close()


def test_another_run_with_the_number_that_was_sent_last_is_not_sent(vm, endpoint):
    vm.configure(None, forward=over_http(vm, endpoint))
    assert subprocess.run(vm.command("forward", "--once"), check=False).returncode == 0
    state = vm.root / "state"
    assert read_status(state, vm.archive).lag_records == 0
    cursor = json.loads((state / "cursor.json").read_bytes())
    cursor["sample"]["run"] = "e" * 32
    del cursor["taken"]
    (state / "cursor.json").write_text(json.dumps(cursor))
    assert read_status(state, vm.archive).lag_records == 1


def test_a_safe_bundle_is_not_enough(vm, endpoint):
    endpoint.answers = [503]
    code, said = vm.teardown("--limit", "15s", to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"], said["troubles"]) == (3, False, [])
    assert vm.numbers(*bundles(vm.waiting)) == list(range(2, 42))
    endpoint.answers = [200]
    assert vm.teardown(to=None, forward=over_http(vm, endpoint))[0] == 0
    assert taken(endpoint) == seqs_of(vm.archive)


@pytest.mark.parametrize("status", [400, 413])
def test_who_refuses_everything_has_nothing(vm, endpoint, status):
    endpoint.answers = [status]
    code, said = vm.teardown(to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"], said["undeliverable"]) == (3, False, 0)
    assert f"answers {status}" in said["forward_trouble"]
    assert "nothing is passed over" in said["forward_trouble"]
    assert f"answers {status}" in vm.run("teardown").stderr
    assert f"answers {status}" in vm.run("status").stdout
    endpoint.answers = [200]
    code, said = vm.teardown(to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"], said["forward_trouble"]) == (0, True, None)
    assert taken(endpoint) == seqs_of(vm.archive)


def test_one_refused_record_is_told(vm, endpoint):
    poison = seqs_of(vm.archive)[5]
    endpoint.answers = [lambda body: 413 if f'"seq":"{poison}"'.encode() in body else 200]
    code, said = vm.teardown(to=None, forward=over_http(vm, endpoint))
    assert (code, said["forwarded"]) == (0, True)
    assert said["undeliverable"] > 0
    assert "undeliverable" in vm.run("teardown").stderr


def test_a_server_that_keeps_us_waiting_is_left_in_time(vm):
    with hostile_http.serving(hostile_http.continues) as port:
        forward = {"to": "http", "cluster": "c", "url": f"http://127.0.0.1:{port}/", "timeout": "10min"}
        begin = time.monotonic()
        code, said = vm.teardown(
            "--limit", "4s", to=None, forward={**forward, "state": str(vm.root / "state")}
        )
        assert time.monotonic() - begin < 5 * 4
    assert (code, said["forwarded"]) == (3, False)
    # By the forwarder's own words, or ours where it came too late for any.
    assert said["forward_trouble"].endswith(("no whole answer in time", "not done in time"))
    state = str(vm.root / "state")
    assert not [one for one in psutil.process_iter(["environ"]) if state in str(one.info["environ"] or "")]


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
