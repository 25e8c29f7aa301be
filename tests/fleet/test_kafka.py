"""Records from a real broker, each filed once: in parts, sent twice, by several collectors, with the broker killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.format.layout import RECORD_KINDS

from tests.fleet.messages import Given, as_somebody_else, messages
from tests.fleet.place import Machines, Vm, assert_same, sums
from tests.forward.place import Place, consume, kafka_config
from tests.parts import requires
from tests.real import kafka_admin
from tests.real.kafka import ALPHA, KafkaBroker
from tests.real.wait import wait_until
from vmsonar.config.shipping import CollectKafka, Tls
from vmsonar.fleet.holdings import read_holding
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.kafka import KafkaSource
from vmsonar.fleet.store import Fleet, open_fleet

pytestmark = requires("kafka", "kcat")


class Collectors:
    """Collectors of one group over one fleet."""

    def __init__(self, folder: Path, broker: KafkaBroker, cluster: str, every: str = "1s") -> None:
        self.root = folder / "fleet"
        self.config = folder / "collect.yaml"
        kafka = {"brokers": [broker.plaintext], "cluster": cluster, "group": cluster, "every": every,
                 "tls": {"use": "none"}}  # fmt: skip
        self.config.write_text(
            json.dumps({"fleet": {"place": str(self.root), "every": "1s", "kafka": kafka}})
        )
        self._log = folder / "collect.log"
        self._broker, self._cluster = broker, cluster

    @property
    def fleet(self) -> Fleet:
        return open_fleet(self.root)

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "vmsonar", "collect", "--config", str(self.config), *options]

    def start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("a") as log:
            return subprocess.Popen(self.command(), stderr=log, env={**os.environ})

    def lag(self) -> int:
        """How many messages the group has not taken."""
        kafka = pytest.importorskip("confluent_kafka")
        consumer = kafka.Consumer(
            self._broker.client() | {"group.id": self._cluster, "enable.auto.commit": False}
        )
        try:
            names = [
                name for name in consumer.list_topics(timeout=10).topics if name.startswith(self._cluster)
            ]
            places = [kafka.TopicPartition(name, number) for name in names for number in range(4)]
            return sum(
                consumer.get_watermark_offsets(one, timeout=10)[1] - max(one.offset, 0)
                for one in consumer.committed(places, timeout=10)
            )
        finally:
            consumer.close()

    def once(self) -> dict[str, int]:
        done = subprocess.run(
            self.command("--once", "--json"), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def forwarder(folder: Path, broker: KafkaBroker, cluster: str, vm: Vm, **more: object) -> Place:
    forward = kafka_config(broker, cluster, dialect="native", **more)
    return Place(folder / f"forward-{vm.root.name}", forward, vm.root)


def topics(broker: KafkaBroker, cluster: str, partitions: int = 4) -> None:
    for kind in RECORD_KINDS:
        kafka_admin.create_topic(broker.client(), f"{cluster}.{kind}", {}, partitions)


def test_records_are_filed_once(
    kafka_broker: KafkaBroker, tmp_path: Path, machines: Machines, intake: Intake
) -> None:
    cluster = f"{ALPHA.cluster}.collected"
    first, second = machines(), machines()
    collectors = Collectors(tmp_path, kafka_broker, cluster)
    for vm in (first, second):
        vm.record(150)
        assert forwarder(tmp_path, kafka_broker, cluster, vm).once().returncode == 0
    assert collectors.once()["records"] == 302
    assert_same(collectors.fleet, [first, second])
    assert collectors.once()["records"] == 0
    # All of it again, as a forwarder without its cursor sends it.
    again = Place(tmp_path / "again", kafka_config(kafka_broker, cluster, dialect="native"), first.root)
    assert again.once().returncode == 0
    done = collectors.once()
    assert (done["records"], done["repeats"]) == (0, 151)
    # And in a bundle: the machine is the same.
    first.record(60)
    receipt = Intake(collectors.fleet).take(first.bundle("also.tar"), "test")
    assert (receipt.accepted, receipt.records, receipt.repeats) == (True, 61, 151), receipt
    assert_same(collectors.fleet, [first, second])


def test_a_record_in_parts_is_one_record(kafka_broker: KafkaBroker, tmp_path: Path, vm: Vm) -> None:
    cluster = f"{ALPHA.cluster}.parts"
    vm.record(20, processes=300)
    place = forwarder(tmp_path, kafka_broker, cluster, vm, max_message=20_000)
    assert place.once().returncode == 0
    assert sum("part" in message for message in consume(kafka_broker, f"{cluster}.sample")) > 40
    collectors = Collectors(tmp_path, kafka_broker, cluster)
    assert collectors.once()["records"] == 21
    assert_same(collectors.fleet, [vm])


def test_what_is_no_record_is_set_aside(kafka_broker: KafkaBroker, tmp_path: Path, vm: Vm) -> None:
    producer = pytest.importorskip("confluent_kafka").Producer(kafka_broker.client())
    cluster = f"{ALPHA.cluster}.poison"
    vm.record(20)
    assert forwarder(tmp_path, kafka_broker, cluster, vm).once().returncode == 0
    poison = [
        (b"", []),
        (b"{}", [("archive", b"../..")]),
        (b"\xff" * 100, [("archive", b"\xff")]),
        (None, None),
    ]
    for value, headers in poison:
        producer.produce(f"{cluster}.sample", value=value, headers=headers)
    assert producer.flush(30) == 0
    collectors = Collectors(tmp_path, kafka_broker, cluster)
    done = subprocess.run(
        collectors.command("--once", "--json"), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["refused"] == len(poison)
    assert_same(collectors.fleet, [vm])
    reasons = [json.loads(path.read_bytes())["reason"] for path in collectors.fleet.refused.glob("*.json")]
    assert reasons == ["bad_record"] * len(poison)
    # Somebody speaks under its id: that is refused once, and what came with it is filed.
    kind, said, line = as_somebody_else(messages(vm.root)[-1])
    headers = [
        (name, str(getattr(said, name)).encode()) for name in ("archive", "run", "boot", "seq", "identity")
    ]
    producer.produce(f"{cluster}.{kind}", value=line, headers=headers)
    assert producer.flush(30) == 0
    vm.record(10)
    assert forwarder(tmp_path, kafka_broker, cluster, vm).once().returncode == 0
    done = subprocess.run(
        collectors.command("--once", "--json"), capture_output=True, text=True, timeout=120, check=False
    )
    told = json.loads(done.stdout)
    assert (done.returncode, told["refused"], told["records"]) == (1, 1, 11), done.stderr
    assert collectors.once()["records"] == 0
    assert_same(collectors.fleet, [vm])


def test_what_is_only_poison_is_passed_once(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    producer = pytest.importorskip("confluent_kafka").Producer(kafka_broker.client())
    cluster = f"{ALPHA.cluster}.only-poison"
    for _ in range(3):
        producer.produce(f"{cluster}.sample", value=b"{}", headers=[("archive", b"../..")])
    assert producer.flush(30) == 0
    collectors = Collectors(tmp_path, kafka_broker, cluster)
    for refused in (3, 0):
        done = subprocess.run(
            collectors.command("--once", "--json"), capture_output=True, text=True, timeout=120, check=False
        )
        assert json.loads(done.stdout)["refused"] == refused, done.stderr
    assert len(list(collectors.fleet.refused.glob("*.json"))) == 3


class Consumer:
    """Gives what it was given, and remembers what was committed; between two rounds its partitions are taken away."""

    def __init__(self, source: KafkaSource, given: list[list[object]]) -> None:
        self._source = source
        self._given = given
        self.committed: list[int] = []

    def consume(self, *_: object) -> list[object]:
        if self._given:
            return self._given.pop(0)
        self._source._on_revoke(self, [])
        return []

    def commit(self, offsets: list[Any], **_: object) -> None:
        self.committed += [one.offset for one in offsets]

    def close(self) -> None:
        pass


def test_what_is_refused_while_partitions_go_is_told(vm: Vm, intake: Intake) -> None:
    vm.record(10)
    vm.stop()
    sent = messages(vm.root)[1:]
    source = KafkaSource(CollectKafka(brokers=["none:1"], tls=Tls(use="none")), intake)
    some = [Given(*message, number) for number, message in enumerate([*sent, as_somebody_else(sent[-1])])]
    consumer = source._consumer = Consumer(source, [some])  # type: ignore[arg-type]
    source._due = float("inf")
    found = list(source.round())
    assert [(one.accepted, one.records, one.reason) for one in found] == [
        (False, 0, "other_machine"),
        (True, 10, None),
    ]
    assert consumer.committed == [len(some)]


def test_a_head_published_by_kafka_is_missed_in_a_later_journal(
    kafka_broker: KafkaBroker, tmp_path: Path, vm: Vm
) -> None:
    cluster = f"{ALPHA.cluster}.heads"
    vm.record(200)
    copy = tmp_path / "copy"
    shutil.copytree(vm.root, copy)
    vm.record(800)
    assert forwarder(tmp_path, kafka_broker, cluster, vm).once().returncode == 0
    collectors = Collectors(tmp_path, kafka_broker, cluster)
    collectors.once()
    vm.come_back_as(copy)
    vm.record(2000)
    receipt = Intake(collectors.fleet).take(vm.bundle("rewritten.tar"), "test")
    assert receipt.reason == "other_history", receipt


def endure(
    collectors: Collectors, send: Callable[[Vm], None], made: list[Vm], kills: int, seconds: float
) -> None:
    """Two collectors of a group, of which one is killed at a random moment again and again while records come."""
    chance = random.Random(20)
    running = [collectors.start(), collectors.start()]
    try:
        for number in range(kills):
            if number % 4 == 0:
                vm = chance.choice(made)
                vm.record(chance.randrange(5, 100))
                send(vm)
            time.sleep(chance.uniform(0, seconds))
            victim = chance.randrange(2)
            running[victim].send_signal(signal.SIGKILL)
            running[victim].wait(30)
            running[victim] = collectors.start()
    finally:
        for process in running:
            process.kill()
            process.wait(30)
    # Those that were killed are members of the group until their session ends.
    wait_until(lambda: collectors.once()["records"] == 0 and collectors.lag() == 0, 180, "all of it")
    assert_same(collectors.fleet, made)


@pytest.mark.parametrize(
    ("kills", "seconds"),
    [
        pytest.param(8, 2.0, marks=pytest.mark.slow),
        pytest.param(100, 4.0, marks=[pytest.mark.slow, pytest.mark.chaos]),
    ],
)
def test_collectors_are_killed_at_random(
    kafka_broker: KafkaBroker, tmp_path: Path, machines: Machines, kills: int, seconds: float
) -> None:
    cluster = f"{ALPHA.cluster}.storm-{kills}"
    made = [machines() for _ in range(3)]
    topics(kafka_broker, cluster)

    def send(vm: Vm) -> None:
        assert forwarder(tmp_path, kafka_broker, cluster, vm).once().returncode == 0

    for vm in made:
        vm.record(20)
        send(vm)
    endure(Collectors(tmp_path, kafka_broker, cluster), send, made, kills, seconds)


@pytest.mark.slow
def test_collectors_and_the_broker_are_killed(
    kafka_broker: KafkaBroker, tmp_path: Path, machines: Machines
) -> None:
    cluster = f"{ALPHA.cluster}.collector-killed"
    made = [machines() for _ in range(2)]
    topics(kafka_broker, cluster)
    collectors = Collectors(tmp_path, kafka_broker, cluster)
    running = [collectors.start(), collectors.start()]
    try:
        for turn in range(3):
            for vm in made:
                vm.record(100)
                assert forwarder(tmp_path, kafka_broker, cluster, vm).once().returncode == 0
            running[turn % 2].send_signal(signal.SIGKILL)
            running[turn % 2].wait(30)
            running[turn % 2] = collectors.start()
            if turn == 1:
                kafka_broker.kill()
                kafka_broker.start()
        expected = sums(vm.root for vm in made)

        def all_there() -> bool:
            found = [read_holding(collectors.fleet, archive) for archive in expected]
            return sum(one.records for one in found if one) == 2 * 3 * 101

        wait_until(all_there, 120, "all records in the fleet")
    finally:
        for process in running:
            process.kill()
            process.wait(30)
    assert_same(collectors.fleet, made)
