"""Brokers that stop, die, hang and fill up, a network that drops packets, a forwarder that is killed: nothing is lost.

The archive is written by the real daemon meanwhile, which must not notice any of it.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive

from tests.archive.dialect.sonar_rules import validate
from tests.forward.place import Place, consume, first_seen, identities, kafka_config
from tests.forward.relay import Relay
from tests.making.forwarded import Recorder
from tests.parts import requires
from tests.real.kafka import ALPHA, KafkaBroker
from tests.real.wait import let_pass, wait_until

pytestmark = requires("kafka", "kcat")

INTERVAL = 0.5


@contextmanager
def daemon(archive: Path) -> Iterator[None]:
    """The real sampler, until the end of the block."""
    line = [
        sys.executable,
        "-m",
        "vmsonar.daemon",
        "--archive",
        str(archive),
        "--interval",
        f"{INTERVAL * 1000:g}ms",
    ]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    try:
        wait_until((archive / "archive.json").exists, 30, "the daemon's archive")
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(20)


def assert_complete(broker: KafkaBroker, place: Place, cluster: str) -> None:
    """Everything in the archive arrived, in order at first sight; what is there twice is the same record."""
    with open_archive(place.archive) as archive:
        samples = list(archive.samples())
        expected = [(archive.identity.archive, sample.run, sample.boot, sample.seq, "") for sample in samples]
    messages = consume(broker, f"{cluster}.sample")
    assert list(dict.fromkeys(identities(messages))) == expected
    values: dict[str, str] = {}
    for message in messages:
        validate(message["value"])
        assert values.setdefault(message["seq"], message["value"]) == message["value"], (
            "a repeat that differs"
        )
    machines = consume(broker, f"{cluster}.sysinfo")
    assert first_seen(machines) == [info.seq for info in open_archive(place.archive).sysinfos()]


def assert_no_tick_was_missed(archive: Path) -> None:
    with open_archive(archive) as opened:
        times = [sample.boottime / 1e9 for sample in opened.samples()]
    # The last sample is taken when the daemon is told to stop.
    steps = [after - before for before, after in pairwise(times[:-1])]
    assert len(times) > 10
    # Fivefold, for a busy machine; each outage lasts longer than this.
    assert max(steps) < 5 * INTERVAL, "sampling was held up"


def kill_at_random(place: Place, times: int, meanwhile: dict[int, object], seed: int = 1) -> None:
    """Starts the forwarder so many times and kills it after a moment, doing something else in between."""
    draw = random.Random(seed)
    for number in range(times):
        action = meanwhile.get(number)
        with place.running() as process:
            time.sleep(draw.uniform(0.3, 2.0))
            if action is not None:
                action()  # type: ignore[operator]
            process.send_signal(signal.SIGKILL)
            process.wait(10)


def _outage(broker: KafkaBroker, seconds: float) -> None:
    broker.kill()
    let_pass(seconds)
    broker.start()


def _freeze(broker: KafkaBroker, seconds: float) -> None:
    broker.pause()
    let_pass(seconds)
    broker.resume()


def _killed(
    broker: KafkaBroker, folder: Path, cluster: str, times: int, meanwhile: dict[int, object]
) -> None:
    place = Place(folder, {})
    place.configure(
        kafka_config(broker, cluster, ALPHA, password_file=place.secret("password", ALPHA.password))
    )
    with daemon(place.archive):
        kill_at_random(place, times, meanwhile)
    done = place.once()
    assert done.returncode == 0, done.stderr
    assert_complete(broker, place, cluster)
    assert_no_tick_was_missed(place.archive)


def test_forwarder_and_broker_are_killed(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    meanwhile = {2: lambda: _outage(kafka_broker, 2), 5: lambda: _freeze(kafka_broker, 3)}
    _killed(kafka_broker, tmp_path, f"{ALPHA.cluster}.killed", 8, meanwhile)


@pytest.mark.chaos
def test_forwarder_is_killed_fifty_times(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    meanwhile = {number: lambda: _outage(kafka_broker, 3) for number in range(5, 50, 15)}
    meanwhile |= {number: lambda: _freeze(kafka_broker, 5) for number in range(10, 50, 15)}
    _killed(kafka_broker, tmp_path, f"{ALPHA.cluster}.fifty", 50, meanwhile)


def _wait_for_all(broker: KafkaBroker, cluster: str, recorder: Recorder, seconds: float = 120) -> None:
    def complete() -> bool:
        with suppress(AssertionError):
            return first_seen(consume(broker, f"{cluster}.sample")) == recorder.samples
        return False

    wait_until(complete, seconds, "all samples", every=0.5)


def _through_an_outage(broker: KafkaBroker, folder: Path, cluster: str, seconds: float) -> None:
    """One forwarder lives through it, says so once, and says when it is over."""
    place = Place(folder, kafka_config(broker, cluster))
    recorder = Recorder(place.archive)
    recorder.record(50)
    with place.running() as process:
        _wait_for_all(broker, cluster, recorder)
        broker.stop()
        recorder.record(50)
        let_pass(seconds)
        recorder.record(50)
        assert process.poll() is None
        wait_until(lambda: place.status["trouble"], 30, "trouble in the status")
        assert place.status["trouble"].startswith(f"cannot reach {broker.plaintext}")
        wait_until(lambda: place.status["lag_records"] >= 100, 30, "the lag in the status")
        broker.start()
        _wait_for_all(broker, cluster, recorder)
        wait_until(lambda: "acknowledged again" in place.log, 60, "the end of the trouble")
    recorder.close()
    down, again = place.log.splitlines()
    assert f"vmsonar: warning: cannot reach {broker.plaintext}: " in down
    assert down.endswith("; trying again until it works")
    assert again.endswith("vmsonar: info: records are acknowledged again")
    assert_complete(broker, place, cluster)


def test_a_broker_is_stopped_for_a_while(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    _through_an_outage(kafka_broker, tmp_path, "stopped.example", 4)


@pytest.mark.chaos
def test_a_broker_is_stopped_for_longer_than_any_timeout(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """librdkafka gives up on a request after 60 s, on a message after 300 s unless told otherwise."""
    _through_an_outage(kafka_broker, tmp_path, "long.example", 330)


@contextmanager
def namespace() -> Iterator[str]:
    """A network namespace with nothing but its loopback."""
    name = f"vmsonar-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@requires("netns")
def test_a_network_that_drops_packets(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    place = Place(tmp_path, kafka_config(kafka_broker, "dropped.example"))
    recorder = Recorder(place.archive)
    recorder.record(50)
    with namespace() as netns:
        relay = Relay("127.0.0.1", kafka_broker.plain_port, kafka_broker.plain_port, netns)
        rule = ["-p", "tcp", "--dport", str(kafka_broker.plain_port), "-j", "DROP"]
        cut = ["ip", "netns", "exec", netns, "iptables"]
        forwarder = subprocess.Popen(["ip", "netns", "exec", netns, *place.command()], stderr=subprocess.PIPE)
        try:
            _wait_for_all(kafka_broker, "dropped.example", recorder)
            subprocess.run([*cut, "-I", "INPUT", *rule], check=True)
            recorder.record(50)
            let_pass(5)
            assert len(consume(kafka_broker, "dropped.example.sample")) == 50, "nothing comes through"
            subprocess.run([*cut, "-D", "INPUT", *rule], check=True)
            _wait_for_all(kafka_broker, "dropped.example", recorder)
        finally:
            forwarder.kill()
            forwarder.communicate()
            relay.close()
    recorder.close()
    assert_complete(kafka_broker, place, "dropped.example")


@pytest.mark.chaos
@requires("tmpfs_mount")
def test_a_broker_whose_disk_is_full_and_that_wants_certificates(tmp_path: Path) -> None:
    """Its log folder is a small tmpfs; SASL_SSL demands a certificate of ours as well."""
    data = tmp_path / "kafka" / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(data)], check=True)
    extra = {"listener.name.sasl_ssl.ssl.client.auth": "required", "log.segment.bytes": "1048576",
             "metadata.log.dir": str(tmp_path / "meta"), "log.index.size.max.bytes": "65536"}  # fmt: skip
    broker = KafkaBroker(tmp_path / "kafka", extra)
    cluster = f"{ALPHA.cluster}.full"
    try:
        broker.start()
        place = Place(tmp_path / "place", {})
        settings = kafka_config(
            broker, cluster, ALPHA, password_file=place.secret("password", ALPHA.password)
        )
        place.configure(settings)
        assert place.once(timeout="10s").returncode == 3, "no archive yet"
        recorder = Recorder(place.archive, processes=40)
        recorder.record(500)
        refused = place.once(timeout="20s")
        assert refused.returncode == 1
        own = broker.authority.issue("client")
        place.configure({**settings, "tls": {**settings["tls"], "certificate_file": str(own)}})
        assert place.once().returncode == 0
        (data / "ballast").write_bytes(bytes(_free(data) - 4096))
        recorder.record(3000)
        recorder.close()
        left = place.once(timeout="20s")
        assert left.returncode == 1
        assert "records are not acknowledged" in left.stderr
        (data / "ballast").unlink()
        broker.restart()
        done = place.once()
        assert done.returncode == 0, done.stderr
        assert_complete(broker, place, cluster)
    finally:
        broker.stop()
        subprocess.run(["umount", str(data)], check=True)


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def test_the_state_folder_is_full_or_gone(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """The cursor cannot be written: sending goes on, and is done again after a restart."""
    place = Place(tmp_path, kafka_config(kafka_broker, "readonly.example"))
    recorder = Recorder(place.archive)
    recorder.record(20)
    with place.running():
        _wait_for_all(kafka_broker, "readonly.example", recorder)
        wait_until(lambda: place.cursor["sample"].get("seq", 0) > 20, 30, "the cursor")
        place.state.rename(tmp_path / "elsewhere")
        recorder.record(20)
        _wait_for_all(kafka_broker, "readonly.example", recorder)
        wait_until(lambda: "cannot write to" in place.log, 30, "a line about it")
        (tmp_path / "elsewhere").rename(place.state)
    assert place.log.count("cannot write to") == 1
    recorder.close()
    assert place.once().returncode == 0
    assert_complete(kafka_broker, place, "readonly.example")


def test_a_second_forwarder_is_refused_and_a_damaged_cursor_is_not(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    place = Place(tmp_path, kafka_config(kafka_broker, "second.example"))
    recorder = Recorder(place.archive)
    recorder.record(20)
    recorder.close()
    with place.running() as process:
        _wait_for_all(kafka_broker, "second.example", recorder)
        second = place.once()
        assert second.returncode == 3
        assert f"by process {process.pid}" in second.stderr
    (place.state / "cursor.json").write_text("{")
    again = place.once()
    assert again.returncode == 0
    assert "is damaged" in again.stderr
    messages = consume(kafka_broker, "second.example.sample")
    assert identities(messages)[:20] == identities(messages)[20:40]


def test_a_cloned_machine_sends_its_own_archive(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    from vmsonar_archive.format.identity import NodeIdentity

    place = Place(tmp_path, kafka_config(kafka_broker, "clone.example"))
    recorder = Recorder(place.archive)
    recorder.record(20)
    recorder.close()
    assert place.once().returncode == 0
    with place.running():
        clone = Recorder(place.archive, node=NodeIdentity(machine_id="f" * 32))
        clone.record(15)

        def has_both() -> bool:
            return (
                len({identity[0] for identity in identities(consume(kafka_broker, "clone.example.sample"))})
                == 2
            )

        wait_until(has_both, 60, "the clone's records")
    clone.close()
    assert place.once().returncode == 0
    found = identities(consume(kafka_broker, "clone.example.sample"))
    assert len(set(found)) == 35
    assert json.loads((place.archive / "archive.json").read_text())["archive"] == found[-1][0]
