"""Sends to Kafka by librdkafka (idempotent, all replicas), and says what its errors mean in one line."""

import json
import logging
import re
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

from vmsonar_archive.system.errors import missing_extra
from vmsonar_archive.system.text import masked

from vmsonar.forward.messages import Fate, ForwardMessage, Outcome, ReceiverRefused, Sender


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in where, for error messages; no secrets."""

    brokers: str
    username: str | None = None
    ca_file: str | None = None


# What librdkafka puts around the cause: who met it, and how long that took.
_AROUND = re.compile(
    r"^(?:[a-z_]+://)?[^ ]*/(?:bootstrap|\d+): |\s*\(after \d+ms in state [A-Z_]+[^)]*\)"
    r"|SSL handshake failed: |error:[0-9A-F]+:SSL routines:[^:]*:|: broker certificate could not be verified.*"
)

# librdkafka's names of errors: about this one message; about the login, the certificate, the rights, the topic.
_NOT_TAKEN = (
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_MSG",
    "INVALID_RECORD",
    "POLICY_VIOLATION",
)
_LOGIN = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")
_UNTRUSTED = ("_SSL",)
_RIGHTS = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")

# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_HOST = (62, 64)


def gist(said: str) -> str:
    """The cause alone."""
    return _AROUND.sub("", said)


def why_untrusted(login: Login) -> ssl.SSLCertVerificationError | None:
    """Asks the first broker once more, because librdkafka does not tell what is wrong with a certificate."""
    host, _, port = login.brokers.split(",")[0].rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cafile=login.ca_file)
        with socket.create_connection((host, int(port)), timeout=5) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None
    return None


# A login can fail for a moment while a broker starts; the third time in a row it is believed.
_BELIEVED = 3
_CLOSE_SECONDS = 1.0
# Our own sentence around a broker's words.
_LONGEST = 600


class KafkaSender(Sender):
    """librdkafka reconnects and retries by itself, for ever, in order; what it cannot mend ends it."""

    def __init__(self, settings: dict[str, Any], login: Login, secrets: tuple[str, ...] = ()) -> None:
        try:
            from confluent_kafka import KafkaError, KafkaException, Producer
        except ImportError:
            raise missing_extra("kafka", "forwarding to Kafka") from None
        self._login = login
        self._secrets = secrets
        self._outcomes: list[Outcome] = []
        self._refusals = 0
        self._refused: str | None = None
        self._is_lost = False
        self._codes = KafkaError
        self._exception = KafkaException
        try:
            callbacks = {"error_cb": self._on_error, "stats_cb": self._on_statistics}
            self._producer = Producer(settings | callbacks, logger=silent_logger())
        except KafkaException as error:
            raise ReceiverRefused(self._refusal(error.args[0])) from None

    def submit(self, message: ForwardMessage, token: int) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            (name, value.encode()) for name, value in message.headers.items()
        ]
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key.encode(),
                    headers=headers,
                    on_delivery=lambda error, delivered: self._on_delivery(token, error, delivered),
                )
                return
            except BufferError:
                self._producer.poll(0.1)
            except self._exception as error:
                self._judge(token, error.args[0], message.topic)
                self._check()
                return

    def wait(self, seconds: float) -> list[Outcome]:
        self._producer.poll(seconds)
        self._check()
        return self._take()

    def close(self) -> list[Outcome]:
        """Messages that are not acknowledged by now stay in the archive."""
        end = time.monotonic() + _CLOSE_SECONDS
        while len(self._producer) and self.trouble is None and time.monotonic() < end:
            self._producer.poll(0.05)
        outcomes = self._take()
        self._producer.purge()
        self._producer.poll(0)
        return [outcome for outcome in outcomes if outcome.fate is Fate.ACKNOWLEDGED]

    def _take(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        if self._is_lost:
            outcomes.append(Outcome(-1, Fate.LOST, self.trouble or "the producer failed"))
        return outcomes

    def _check(self) -> None:
        if self._refused is not None:
            raise ReceiverRefused(self._refused)

    def _on_delivery(self, token: int, error: Any, delivered: Any) -> None:
        if error is None:
            self._refusals = 0
            self.trouble = None
            self._outcomes.append(Outcome(token, Fate.ACKNOWLEDGED))
        else:
            self._judge(token, error, delivered.topic())

    def _judge(self, token: int, error: Any, topic: str) -> None:
        if self._is(error, _NOT_TAKEN):
            self._outcomes.append(Outcome(token, Fate.NOT_TAKEN, masked(error.str(), self._secrets)))
        elif self._is_refusal(error):
            self._refused = self._refusal(error, topic)
        elif not self._is(error, ("_PURGE_QUEUE", "_PURGE_INFLIGHT")):
            self._lose(error)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._lose(error)
        elif self._is_refusal(error):
            self._refusals += 1
            if self._refusals >= _BELIEVED:
                self._refused = self.trouble = self._refusal(error)
        elif self._refusals == 0:
            said = masked(gist(error.str()), self._secrets)
            self.trouble = f"cannot reach {self._login.brokers}: {said}"

    def _lose(self, error: Any) -> None:
        self.trouble = masked(error.str(), self._secrets)
        self._is_lost = True

    def _is(self, error: Any, names: tuple[str, ...]) -> bool:
        return error.code() in [getattr(self._codes, name) for name in names]

    def _is_refusal(self, error: Any) -> bool:
        """Whether retrying cannot help."""
        is_untrusted = self._is(error, _UNTRUSTED) and "certificate" in error.str().lower()
        return is_untrusted or self._is(error, (*_LOGIN, *_RIGHTS, *_NO_TOPIC, "TOPIC_EXCEPTION"))

    def _refusal(self, error: Any, topic: str = "") -> str:
        return masked(self._told(error, topic), self._secrets, _LONGEST)

    def _told(self, error: Any, topic: str) -> str:
        """The error in one line: what, where, and what to do."""
        said, brokers, username = gist(error.str()), self._login.brokers, self._login.username
        who = f"user {username}" if username else "this client"
        if self._is(error, _LOGIN):
            return f"{brokers} refuses the login of {who} ({said}): check forward.auth, username and password_file"
        if self._is(error, _UNTRUSTED):
            reason = why_untrusted(self._login)
            said = reason.verify_message if reason else said
            if reason is not None and reason.verify_code in _OTHER_HOST:
                return f"the certificate of {brokers} is for another host ({said}): check forward.brokers"
            return f"the certificate of {brokers} is not trusted ({said}): check forward.tls.ca_file"
        if self._is(error, _RIGHTS):
            return f"{brokers} does not let {who} write topic {topic}: check forward.cluster and the broker's ACLs"
        if self._is(error, _NO_TOPIC):
            return f"{brokers} has no topic {topic} and does not make it: create it, or check forward.cluster"
        return f"{brokers}: {said}"

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text).get("brokers", {}).values()
        self.retried = sum(broker.get("txretries", 0) for broker in brokers)


def silent_logger() -> logging.Logger:
    """librdkafka repeats itself at every attempt, and quotes settings; what matters comes by the callbacks."""
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger
