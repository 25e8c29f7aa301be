"""Forwarding to a real broker, read back by kcat and checked by rules that share no code with us."""

import json
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.format.lines import checked
from vmsonar_archive.read.reader import open_archive

from tests.archive.dialect.sonar_rules import validate
from tests.forward.place import Place, consume, first_seen, identities, kafka_config, seqs_of
from tests.forward.relay import Relay
from tests.making.archives import START, boottime_at
from tests.making.forwarded import Recorder, make_day
from tests.parts import requires
from tests.real.certificates import make_authority
from tests.real.kafka import ALPHA, BETA, KafkaBroker, User
from tests.real.wait import wait_until

pytestmark = requires("kafka", "kcat")


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day of one machine: 8640 samples in 24 hours."""
    return make_day(tmp_path_factory.mktemp("day") / "archive")


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_day(tmp_path_factory.mktemp("hour") / "archive", samples=100)


def place_of(
    folder: Path, broker: KafkaBroker, archive: Path, cluster: str, user: User | None = None, **more
) -> Place:
    place = Place(folder / cluster, {}, archive)
    if user is not None:
        more.setdefault("password_file", place.secret("password", user.password))
    place.configure(kafka_config(broker, cluster, user, **more))
    return place


def test_a_day_arrives_complete_and_in_order(kafka_broker: KafkaBroker, day: Path, tmp_path: Path) -> None:
    cluster = f"{ALPHA.cluster}.day"
    place = place_of(tmp_path, kafka_broker, day, cluster, ALPHA)
    done = place.once()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"all is sent: 8641 records to kafka {kafka_broker.secure}\n"
    messages = consume(kafka_broker, f"{cluster}.sample")
    assert [int(message["seq"]) for message in messages] == seqs_of(day)
    assert len(set(identities(messages))) == len(messages) == 8640
    attributes = [validate(message["value"]) for message in messages]
    assert {message["key"] for message in messages} == {"vm.example"}
    assert [entry["time"] for entry in attributes] == [
        f"{START + timedelta(seconds=10 * number):%Y-%m-%dT%H:%M:%SZ}" for number in range(8640)
    ]
    busy = attributes[5000]["jobs"][0]
    assert (busy["user"], busy["processes"][0]["cmd"]) == ("alice", "python3")
    (machine,) = consume(kafka_broker, f"{cluster}.sysinfo")
    assert validate(machine["value"])["cluster"] == cluster
    assert consume(kafka_broker, f"{cluster}.sample")[0]["head"] == _head(day)


def _head(root: Path) -> str:
    with open_archive(root) as archive:
        return archive.ledger.head


def test_native_records_are_the_archives_own(kafka_broker: KafkaBroker, hour: Path, tmp_path: Path) -> None:
    cluster = f"{BETA.cluster}.native"
    place = place_of(tmp_path, kafka_broker, hour, cluster, BETA, dialect="native", topic_prefix=None)
    assert place.once().returncode == 0
    messages = consume(kafka_broker, f"{cluster}.sample")
    assert [json.loads(checked(message["value"].encode()))["seq"] for message in messages] == seqs_of(hour)
    assert consume(kafka_broker, f"{cluster}.sysinfo")[0]["seq"] == "1"


def test_nothing_is_sent_twice_and_since_sends_again(
    kafka_broker: KafkaBroker, hour: Path, tmp_path: Path
) -> None:
    place = place_of(tmp_path, kafka_broker, hour, "again.example")
    assert place.once().returncode == 0
    assert place.once().returncode == 0
    topic = "again.example.sample"
    assert len(consume(kafka_broker, topic)) == 100
    cursor = place.cursor["sample"]
    since = f"{START + timedelta(seconds=600):%Y-%m-%dT%H:%M:%SZ}"
    assert place.once("--since", since).returncode == 0
    repeated = identities(consume(kafka_broker, topic)[100:])
    assert repeated == identities(consume(kafka_broker, topic)[60:100])
    assert place.cursor["sample"] == cursor


def test_only_what_is_selected(kafka_broker: KafkaBroker, hour: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path, kafka_broker, hour, "select.example", topic_prefix="pre")
    assert place.once("--select", "node").returncode == 0
    found = [validate(message["value"]) for message in consume(kafka_broker, "pre.select.example.sample")]
    assert len(found) == 100
    assert not any("jobs" in entry or "cpus" in entry["system"] for entry in found)
    assert found[0]["system"]["used_memory"] == 2**22
    wrong = place.once("--select", "nodes")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("vmsonar: no such kind: nodes; there are sysinfo, node, cpu,")


def test_a_service_sends_each_sample_as_it_comes(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    place = place_of(tmp_path, kafka_broker, tmp_path / "archive", "live.example")
    with place.running() as process:
        wait_until(lambda: "waiting for the recorder" in place.log, 30, "a forwarder without an archive")
        recorder = Recorder(place.archive)
        for _ in range(4):
            recorder.record(5)
            last = recorder.samples[-1]
            wait_until(
                lambda last=last: _has(kafka_broker, "live.example.sample", last), 30, f"sample {last}"
            )
        recorder.restart()
        recorder.record(1)
        wait_until(
            lambda: _has(kafka_broker, "live.example.sample", recorder.samples[-1]),
            30,
            "the next run's sample",
        )
        begun = time.monotonic()
        process.terminate()
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 10
    recorder.close()
    messages = consume(kafka_broker, "live.example.sample")
    assert [int(message["seq"]) for message in messages] == recorder.samples
    assert place.status["counts"]["sent"] == 23
    assert place.status["lag_records"] == 0


def _has(broker: KafkaBroker, topic: str, seq: int) -> bool:
    try:
        return any(int(message["seq"]) == seq for message in consume(broker, topic))
    except AssertionError:
        return False  # the topic comes with its first message


def refused(place: Place, *, expect: str) -> None:
    """One line, exit 1 for --once and 3 for a service, and the cursor where it was."""
    done = place.once()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert expect in done.stderr
    assert place.cursor["sample"].get("seq") == 1
    assert "secret" not in done.stderr


def test_a_wrong_password(kafka_broker: KafkaBroker, hour: Path, tmp_path: Path) -> None:
    wrong = User("alpha", "not-the-secret", "PLAIN")
    place = place_of(tmp_path, kafka_broker, hour, f"{ALPHA.cluster}.wrong", wrong)
    refused(place, expect=f"vmsonar: {kafka_broker.secure} refuses the login of user alpha "
            "(SASL authentication error: Authentication failed: Invalid username or password): "
            "check forward.auth, username and password_file")  # fmt: skip
    with place.running() as process:
        assert process.wait(60) == 3
    assert place.log.count("\n") == 1


def test_an_unknown_authority(kafka_broker: KafkaBroker, hour: Path, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other").certificate
    place = place_of(tmp_path, kafka_broker, hour, f"{ALPHA.cluster}.ca", ALPHA, tls={"ca_file": str(other)})
    refused(place, expect="is not trusted (self-signed certificate in certificate chain)")


def test_a_certificate_for_another_host(kafka_broker: KafkaBroker, hour: Path, tmp_path: Path) -> None:
    relay = Relay("127.0.0.2", 0, kafka_broker.secure_port)
    try:
        place = place_of(tmp_path, kafka_broker, hour, f"{ALPHA.cluster}.host", ALPHA)
        place.configure({**place.forward, "brokers": [f"127.0.0.2:{relay.port}"]})
        refused(place, expect="is for another host")
    finally:
        relay.close()


def test_a_topic_of_another_cluster(kafka_broker: KafkaBroker, hour: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path, kafka_broker, hour, f"{BETA.cluster}.foreign", ALPHA)
    refused(place, expect=f"does not let user alpha write topic {BETA.cluster}.foreign.")
    listed = subprocess.run(
        ["kcat", "-L", "-b", kafka_broker.plaintext], capture_output=True, text=True, check=True
    )
    assert f"{BETA.cluster}.foreign" not in listed.stdout


def test_a_message_over_the_limit_is_split_and_what_does_not_fit_is_passed(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """The broker's limit is lower than ours: only its answer tells. Random commands do not compress."""
    topic = "limit.example.sample"
    kafka_broker.create_topic(topic, **{"max.message.bytes": "6000", "compression.type": "uncompressed"})
    recorder = Recorder(tmp_path / "archive")
    recorder.record(5)
    recorder.record(1, processes=300)  # many jobs: fits when split
    recorder.record(5)
    huge = recorder.number
    recorder.writer.append(recorder.time, "b", boottime_at(recorder.time), _one_huge_job())
    recorder.samples.append(recorder.samples[-1] + 1)
    recorder.time += timedelta(seconds=10)
    recorder.record(5)
    recorder.close()
    place = place_of(tmp_path, kafka_broker, recorder.root, "limit.example", compression="none")
    done = place.once()
    assert done.returncode == 0, done.stderr
    messages = consume(kafka_broker, topic)
    split = [m for m in messages if int(m["seq"]) == recorder.samples[5]]
    jobs = {job["job"] for message in split for job in validate(message["value"])["jobs"]}
    assert jobs == {pid - pid % 3 for pid in range(10, 310)}
    assert len(split) > 5
    assert all(len(message["value"]) < 6000 and "/" in message["part"] for message in split)
    arrived = first_seen(messages)
    assert arrived == [seq for seq in recorder.samples if seq != recorder.samples[huge]]
    (line,) = (place.state / "undeliverable.jsonl").read_text().splitlines()
    assert json.loads(line)["seq"] == recorder.samples[huge]
    assert place.status["counts"]["undeliverable"] == 1
    assert f"record {recorder.samples[huge]}" in done.stderr


def _one_huge_job() -> dict[str, list[bytes]]:
    from vmsonar_archive.format.lines import encode_row
    from vmsonar_archive.records import ProcessRow

    table = [ProcessRow(pid=pid, start_ticks=pid, pgid=7, user_ticks=pid) for pid in range(1000, 1400)]
    return {"process": [encode_row(row) for row in table]}


def test_our_own_limit_splits_before_sending(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "archive", processes=200)
    recorder.record(3)
    recorder.close()
    for dialect in ("sonar", "native"):
        cluster = f"own-{dialect}.example"
        place = place_of(tmp_path, kafka_broker, recorder.root, cluster, max_message="8KiB", dialect=dialect)
        assert place.once().returncode == 0
        messages = consume(kafka_broker, f"{cluster}.sample")
        assert all(len(message["value"]) <= 8192 for message in messages)
        assert first_seen(messages) == recorder.samples
        assert len(set(identities(messages))) == len(messages) > 6
        if dialect == "native":
            parts = [
                json.loads(checked(m["value"].encode()))
                for m in messages
                if int(m["seq"]) == recorder.samples[1]
            ]
            assert sum(len(part.get("process", ())) for part in parts) == 200
            assert sum(len(part.get("node", ())) for part in parts) == 1


def test_what_retention_took_is_reported(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    from vmsonar_archive.write.budget import Budget

    recorder = Recorder(tmp_path / "archive", processes=30, budget=Budget(max_bytes=400_000, min_free=0))
    recorder.record(10)
    place = place_of(tmp_path, kafka_broker, recorder.root, "retention.example")
    assert place.once().returncode == 0
    while seqs_of(recorder.root)[0] < 2000:
        recorder.record(200)
        recorder.restart()
    recorder.close()
    done = place.once()
    assert done.returncode == 0
    arrived = set(first_seen(consume(kafka_broker, "retention.example.sample")))
    lost = [seq for seq in recorder.samples if seq not in arrived]
    counted = place.status["counts"]["lost"]
    sysinfos_lost = counted - len(lost)
    assert len(lost) > 1000
    assert 0 <= sysinfos_lost < 20
    assert f"lost: retention dropped {len(lost)} records before they were sent" in done.stderr
