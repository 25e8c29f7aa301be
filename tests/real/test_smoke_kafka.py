"""The broker fixture works: kcat, which we did not write, produces and consumes over both listeners."""

import subprocess
from pathlib import Path

import pytest

from tests.parts import requires
from tests.real.kafka import ALPHA, BETA, KafkaBroker, User

pytestmark = requires("kafka", "kcat")


def kcat(settings: dict[str, str], *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs kcat as a client; its own -b has to repeat the servers."""
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    return subprocess.run(["kcat", "-b", settings["bootstrap.servers"], *options, *arguments], input=text,
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def consume(broker: KafkaBroker, topic: str) -> list[str]:
    done = kcat(broker.client(), "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k=%s\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("user", "topic"),
    [(None, "smoke.plain"), (ALPHA, f"{ALPHA.cluster}.sample"), (BETA, f"{BETA.cluster}.sample")],
    ids=["plaintext", "sasl-plain", "scram"],
)
def test_produce_and_consume(kafka_broker: KafkaBroker, user: User | None, topic: str) -> None:
    done = kcat(kafka_broker.client(user), "-P", "-t", topic, "-K", ":", text="node1:one\nnode2:two\n")
    assert done.returncode == 0, done.stderr
    assert consume(kafka_broker, topic)[-2:] == ["node1=one", "node2=two"]


def test_a_user_may_not_write_another_clusters_topic(kafka_broker: KafkaBroker) -> None:
    topic = f"{BETA.cluster}.sysinfo"
    kafka_broker.create_topic(topic)
    done = kcat(
        kafka_broker.client(ALPHA), "-P", "-t", topic, "-X", "message.timeout.ms=5000", text="forged\n"
    )
    assert done.returncode != 0
    assert "authorization failed" in done.stderr.lower()
    assert consume(kafka_broker, topic) == []


def test_a_wrong_password_is_refused(kafka_broker: KafkaBroker) -> None:
    wrong = User(ALPHA.name, "wrong", ALPHA.mechanism)
    done = kcat(kafka_broker.client(wrong), "-L", "-m", "5")
    assert done.returncode != 0
    assert "authentication" in done.stderr.lower()


def test_acknowledged_messages_survive_kill_and_restart(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "kafka")
    try:
        broker.start()
        assert kcat(broker.client(), "-P", "-t", "kept", "-X", "acks=all", text="one\n").returncode == 0
        broker.kill()
        broker.start()
        assert consume(broker, "kept") == ["=one"]
    finally:
        broker.stop()
