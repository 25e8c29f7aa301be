"""Sends to Kafka by librdkafka, as an idempotent producer that waits for all replicas (its CONFIGURATION.md)."""

import json
import logging
import time
from typing import Any

from vmsonar_archive.errors import missing_extra

from vmsonar.forward.kafka_errors import Login, gist, is_refusal, not_taken, refusal
from vmsonar.forward.messages import Message
from vmsonar.forward.sender import Fate, Outcome, Refused, Sender

# A login can fail for a moment while a broker starts; the third time in a row it is believed.
_BELIEVED = 3
_CLOSE_SECONDS = 1.0


class KafkaSender(Sender):
    """librdkafka reconnects and retries by itself, for ever, in order; what it cannot mend ends it."""

    def __init__(self, settings: dict[str, Any], login: Login) -> None:
        super().__init__()
        try:
            from confluent_kafka import KafkaError, KafkaException, Producer
        except ImportError:
            raise missing_extra("kafka", "forwarding to Kafka") from None
        self._login = login
        self._outcomes: list[Outcome] = []
        self._refusals = 0
        self._refused: str | None = None
        self._is_lost = False
        self._codes = KafkaError
        self._exception = KafkaException
        try:
            self._producer = Producer(
                {
                    **settings,
                    "error_cb": self._on_error,
                    "stats_cb": self._on_statistics,
                },
                logger=_silent_logger(),
            )
        except KafkaException as error:
            raise Refused(refusal(error.args[0], login, KafkaError)) from None

    def submit(self, message: Message, token: int) -> None:
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
            raise Refused(self._refused)

    def _on_delivery(self, token: int, error: Any, delivered: Any) -> None:
        if error is None:
            self._refusals = 0
            self.trouble = None
            self._outcomes.append(Outcome(token, Fate.ACKNOWLEDGED))
        else:
            self._judge(token, error, delivered.topic())

    def _judge(self, token: int, error: Any, topic: str) -> None:
        if not_taken(error, self._codes):
            self._outcomes.append(Outcome(token, Fate.NOT_TAKEN, error.str()))
        elif is_refusal(error, self._codes):
            self._refused = refusal(error, self._login, self._codes, topic)
        elif error.code() not in (self._codes._PURGE_QUEUE, self._codes._PURGE_INFLIGHT):
            self.trouble = error.str()
            self._is_lost = True

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.trouble = error.str()
            self._is_lost = True
        elif is_refusal(error, self._codes):
            self._refusals += 1
            if self._refusals >= _BELIEVED:
                self._refused = self.trouble = refusal(error, self._login, self._codes)
        elif self._refusals == 0:
            self.trouble = f"cannot reach {self._login.brokers}: {gist(error.str())}"

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text).get("brokers", {}).values()
        self.retried = sum(broker.get("txretries", 0) for broker in brokers)


def _silent_logger() -> logging.Logger:
    """librdkafka repeats itself at every attempt, and quotes settings; what matters comes by the callbacks."""
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger
