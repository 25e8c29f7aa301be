"""Receivers that refuse everything are no success; receivers that refuse one record lose nothing else."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from vmsonar_archive.format.lines import BadLine

from tests.forward.http_server import Endpoint
from tests.forward.place import Place, consume, first_seen, kafka_config, seqs_of
from tests.making.forwarded import make_day
from tests.parts import requires
from tests.real.kafka import KafkaBroker
from vmsonar.config.file import load_config
from vmsonar.daemon.log import Log
from vmsonar.daemon.signals import Signals
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.run import Forwarder
from vmsonar.forward.tail import Record
from vmsonar.forward.translate import SonarTranslator

SAMPLES = 40


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_day(tmp_path_factory.mktemp("refusing") / "archive", SAMPLES)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def place_of(folder: Path, archive: Path, endpoint: Endpoint, **settings: object) -> Place:
    return Place(folder, {"to": "http", "cluster": "c.example", "url": endpoint.url, **settings}, archive)


def sent_samples(endpoint: Endpoint) -> list[int]:
    taken = [int(r["headers"]["seq"]) for r in endpoint.records if r["topic"] == "c.example.sample"]
    return list(dict.fromkeys(taken))


def with_seq(body: bytes, seq: int) -> bool:
    return any(
        int(record["headers"]["seq"]) == seq and record["topic"].endswith(".sample")
        for record in json.loads(body)["records"]
    )


def of_samples(body: bytes) -> bool:
    return any(record["topic"].endswith(".sample") for record in json.loads(body)["records"])


@pytest.mark.parametrize("status", [400, 413, 422])
def test_who_refuses_all_has_taken_nothing(
    status: int, endpoint: Endpoint, archive: Path, tmp_path: Path
) -> None:
    endpoint.answers = [status]
    place = place_of(tmp_path, archive, endpoint)
    done = place.once("--json")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"vmsonar: {endpoint.url} answers {status} ")
    assert "nothing is passed over" in done.stderr
    assert json.loads(done.stdout)["trouble"] in done.stderr
    assert place.cursor["sample"].get("run", "") == ""
    assert (place.status["counts"]["undeliverable"], place.status["counts"]["sent"]) == (0, 0)
    assert not (place.state / "undeliverable.jsonl").exists()
    told = json.loads(place.ask("--json").stdout)
    assert any(f"answers {status}" in problem for problem in told["problems"])
    with place.running() as process:
        assert process.wait(30) == 3
    endpoint.answers = [200]
    assert place.once().returncode == 0
    assert sent_samples(endpoint) == seqs_of(archive)


def test_who_refuses_all_from_some_time_on(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    endpoint.answers = [200, 200, 200, 413]
    place = place_of(tmp_path, archive, endpoint, max_payload="8KiB")
    done = place.once()
    assert done.returncode == 1, done.stderr
    assert place.status["counts"]["undeliverable"] == 0
    assert place.cursor["sample"]["seq"] == sent_samples(endpoint)[-1]
    endpoint.answers = [200]
    assert place.once().returncode == 0
    assert sent_samples(endpoint) == seqs_of(archive)


def test_who_takes_one_topic_only(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    endpoint.answers = [lambda body: 413 if of_samples(body) else 200]
    place = place_of(tmp_path, archive, endpoint)
    done = place.once()
    assert done.returncode == 1
    assert "c.example.sample" in done.stderr
    assert place.status["counts"]["undeliverable"] == 0
    assert place.status["lag_records"] == SAMPLES


@pytest.mark.parametrize("where", [0, SAMPLES // 2, SAMPLES - 1])
@pytest.mark.parametrize("status", [400, 413])
def test_one_refused_record_stops_nothing(
    status: int, where: int, endpoint: Endpoint, archive: Path, tmp_path: Path
) -> None:
    poison = seqs_of(archive)[where]
    endpoint.answers = [lambda body: status if with_seq(body, poison) else 200]
    place = place_of(tmp_path, archive, endpoint)
    done = place.once()
    assert done.returncode == 0, done.stderr
    assert sent_samples(endpoint) == [seq for seq in seqs_of(archive) if seq != poison]
    lines = (place.state / "undeliverable.jsonl").read_text().splitlines()
    assert {json.loads(line)["seq"] for line in lines} == {poison}
    counts = place.status["counts"]
    assert (counts["sent"], counts["undeliverable"]) == (SAMPLES, len(lines))
    assert f"{len(lines)} undeliverable" in done.stdout


def test_many_refused_records_in_a_row_are_passed_while_others_are_taken(
    endpoint: Endpoint, archive: Path, tmp_path: Path
) -> None:
    seqs = seqs_of(archive)
    poison = set(seqs[3:37])
    endpoint.answers = [lambda body: 413 if any(with_seq(body, seq) for seq in poison) else 200]
    place = place_of(tmp_path, archive, endpoint)
    done = place.once()
    assert done.returncode == 0, done.stderr
    assert sent_samples(endpoint) == [seq for seq in seqs if seq not in poison]


def test_a_limit_of_our_own_that_nothing_keeps(endpoint: Endpoint, archive: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path, archive, endpoint, max_message="1100B")
    done = place.once()
    assert done.returncode == 1
    assert "larger than max_message" in done.stderr
    assert place.cursor["sample"].get("run", "") == ""
    assert endpoint.requests == []


def test_a_record_that_cannot_be_read_is_counted(
    endpoint: Endpoint, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(tmp_path, archive, endpoint)
    bad, translate = seqs_of(archive)[7], SonarTranslator.translate

    def translated(self: SonarTranslator, record: Record) -> bytes | None:
        if record.kind == "sample" and record.stamp.seq == bad:
            raise BadLine("of another kind")
        return translate(self, record)

    monkeypatch.setattr(SonarTranslator, "translate", translated)
    plan, log = ForwardPlan(load_config(place.config).forward), Log("error", StringIO())
    status = Forwarder(archive, place.state, plan, log, Signals(), once=True, timeout=60).run()
    assert (status.counts.unreadable, status.counts.sent, status.lag_records) == (1, SAMPLES, 0)


@requires("kafka", "kcat")
def test_a_topic_whose_limit_nothing_keeps(kafka_broker: KafkaBroker, archive: Path, tmp_path: Path) -> None:
    topic = "tiny.example.sample"
    kafka_broker.create_topic(topic, **{"max.message.bytes": "100"})
    place = Place(tmp_path, kafka_config(kafka_broker, "tiny.example"), archive)
    done = place.once()
    assert done.returncode == 1, done.stderr
    assert topic in done.stderr
    assert place.cursor["sample"].get("run", "") == ""
    assert place.status["counts"]["undeliverable"] == 0
    assert consume(kafka_broker, topic) == []
    kafka_broker.alter_topic(topic, **{"max.message.bytes": "1000000"})
    assert place.once().returncode == 0
    assert first_seen(consume(kafka_broker, topic)) == seqs_of(archive)
