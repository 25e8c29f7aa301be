"""A real Apache Kafka broker in KRaft mode on loopback: PLAINTEXT and SASL_SSL, with users and ACLs."""

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parts import cache_dir, need
from tests.real.certificates import Authority, make_authority
from tests.real.kafka_config import LOG4J, server_properties
from tests.real.ports import accepts, free_ports
from tests.real.wait import wait_until

START_SECONDS = 120
STOP_SECONDS = 60
CLUSTER_ID = "vmsonarTestClusterId-w"
JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@dataclass(frozen=True)
class User:
    """Who may log in on the SASL_SSL listener; `cluster` is the topic prefix that it may write."""

    name: str
    password: str
    mechanism: str
    cluster: str | None = None


ADMIN = User("admin", "admin-secret", "PLAIN")
ALPHA = User("alpha", "alpha-secret", "PLAIN", "alpha.example.org")
BETA = User("beta", "beta-secret", "SCRAM-SHA-512", "beta.example.org")
USERS = (ADMIN, ALPHA, BETA)


class KafkaBroker:
    """One broker with its data below `folder`; ports and data survive stop, kill and restart.

    On PLAINTEXT everybody may do everything. On SASL_SSL so may `admin`; `alpha` (PLAIN) and `beta`
    (SCRAM-SHA-512) may create, describe and write topics that begin with their own cluster's name, no others.
    """

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.authority: Authority = make_authority(folder / "tls")
        self.plain_port, self.secure_port, self.controller_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._has_users = False
        self._write_configuration(properties or {})
        self._format()

    @property
    def plaintext(self) -> str:
        """bootstrap.servers of the PLAINTEXT listener."""
        return f"127.0.0.1:{self.plain_port}"

    @property
    def secure(self) -> str:
        """bootstrap.servers of the SASL_SSL listener."""
        return f"localhost:{self.secure_port}"

    def client(self, user: User | None = None) -> dict[str, str]:
        """librdkafka properties for a client: of the SASL_SSL listener if a user is given."""
        if user is None:
            return {"bootstrap.servers": self.plaintext}
        return {
            "bootstrap.servers": self.secure,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": user.mechanism,
            "sasl.username": user.name,
            "sasl.password": user.password,
            "ssl.ca.location": str(self.authority.certificate),
        }

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    def start(self) -> None:
        """Starts the broker and returns when it serves requests."""
        assert self._process is None, "the broker is already running"
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self.folder / "server.properties")),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        try:
            wait_until(self._serves, START_SECONDS, "Kafka's listeners")
            self._add_users_once()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """An orderly stop."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: no flush, no goodbye."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Starts again on the same ports and data, stopping first if need be."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freezes the broker: connections stay open, nothing is answered."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGCONT)

    def add_user(self, user: User) -> None:
        """A SCRAM user (PLAIN users are fixed at start) and the right to write its own cluster's topics."""
        from tests.real import kafka_admin

        if user.mechanism.startswith("SCRAM"):
            kafka_admin.set_scram_password(self.client(), user.name, user.password, user.mechanism)
        if user.cluster:
            kafka_admin.allow_writing(self.client(), user.name, f"{user.cluster}.")

    def create_topic(self, name: str, **settings: str) -> None:
        from tests.real import kafka_admin

        kafka_admin.create_topic(self.client(), name, settings)

    def alter_topic(self, name: str, **settings: str) -> None:
        from tests.real import kafka_admin

        kafka_admin.alter_topic(self.client(), name, settings)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # a paused broker would not hear it
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
        self._process = None

    def _add_users_once(self) -> None:
        if not self._has_users:
            for user in USERS:
                self.add_user(user)
            self._has_users = True

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"Kafka ended with {self._process.returncode}:\n{self._log_tail()}")
        # The listeners accept before the broker may lead partitions; this line comes after both.
        return accepts(self.plain_port) and accepts(self.secure_port) and self._said_started()

    def _said_started(self) -> bool:
        return b"Kafka Server started" in self.log.read_bytes()[self._log_start :]

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def _write_configuration(self, extra: dict[str, str]) -> None:
        properties = server_properties(
            self.folder / "data",
            self.authority.certificate,
            self.authority.issue("broker"),
            (self.plain_port, self.secure_port, self.controller_port),
            {user.name: user.password for user in USERS if user.mechanism == "PLAIN"},
            ADMIN.name,
        )
        lines = [f"{name}={value}\n" for name, value in (properties | extra).items()]
        (self.folder / "server.properties").write_text("".join(lines))
        (self.folder / "log4j.properties").write_text(LOG4J)

    def _format(self) -> None:
        """Lays out the data folder, as kafka-storage.sh does."""
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.folder / "server.properties")]
        subprocess.run(self._java("kafka.tools.StorageTool", *arguments), check=True, capture_output=True,
                       timeout=START_SECONDS)  # fmt: skip

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        return ["java", *JVM, logging, "-cp", f"{cache_dir() / 'kafka'}/*", main, *arguments]


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running broker for the whole session; use topics of your own, and start it again if you stop it."""
    need("kafka")
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
