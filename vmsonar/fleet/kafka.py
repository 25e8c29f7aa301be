"""Topics of the native dialect, read by a consumer group; offsets are committed after the records are on disk."""

import re
import time
from collections.abc import Callable, Hashable, Iterator, Set
from typing import Any

from vmsonar_archive.format.layout import RECORD_KINDS
from vmsonar_archive.format.lines import BadLine
from vmsonar_archive.system.errors import UsageError, VmsonarError, missing_extra
from vmsonar_archive.system.text import masked

from vmsonar.config.shipping import CollectKafka
from vmsonar.fleet.intake import Intake, Receipt, Refused
from vmsonar.fleet.stream import Stream, read_headers
from vmsonar.forward.kafka import gist, silent_logger
from vmsonar.forward.settings import security

# What is held in memory until it is filed.
_MOST_BYTES = 64 * 1024 * 1024
_BATCH = 500
_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 5.0
_ROUND_SECONDS = 20.0
# How long a group takes to share out its partitions, when everything is asked for once.
_JOIN_SECONDS = 60.0


class KafkaFault(VmsonarError):
    """The consumer is of no use any more; a new one begins where the last commit was."""


class KafkaSource:
    """A member of the consumer group."""

    waiting = 0
    origin = "kafka"
    #: What it could not take is no file of its own.
    trouble: str | None = None

    def __init__(self, settings: CollectKafka, intake: Intake, *, once: bool = False) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise missing_extra("kafka", "collecting from Kafka") from None
        self._library = confluent_kafka
        self._settings = settings
        self._intake = intake
        self._once = once
        self.place = f"kafka {','.join(settings.brokers)}"
        prefix = f"{settings.topic_prefix}." if settings.topic_prefix else ""
        cluster = re.escape(settings.cluster) if settings.cluster else r"[A-Za-z0-9._-]+"
        self._topics = f"^{re.escape(prefix)}{cluster}\\.({'|'.join(RECORD_KINDS)})$"
        self._properties = _properties(settings)
        self._consumer: Any = None
        self._stream = Stream(intake)
        #: Of each partition the offset after the last message that was taken in.
        self._offsets: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()
        self._assigned: set[tuple[str, int]] = set()
        #: Of which the last message belongs to a record that was not whole when it was filed last.
        self._held: Set[Hashable] = frozenset()
        #: What was refused or filed and is not told yet, also while partitions went to another member.
        self._receipts: list[Receipt] = []
        self._due = 0.0
        self._fault: str | None = None
        #: Whether the broker has more for us than one round could take.
        self.is_behind = False

    def round(self, stopping: Callable[[], bool] = lambda: False) -> Iterator[Receipt]:
        """Takes what is there, and files it when it is time."""
        began = time.monotonic()
        try:
            if self._consumer is None:
                self._open()
            if self._fault is not None:
                # It says once that no broker answers, not that none does still.
                self._consumer.list_topics(timeout=_ANSWER_SECONDS)
                self._fault = None
            while not stopping():
                messages = self._consumer.consume(_BATCH, _POLL_SECONDS)
                for message in messages:
                    self._take(message)
                is_full = self._stream.bytes > _MOST_BYTES
                if is_full or (self._has_new() and time.monotonic() >= self._due):
                    self._flush()
                yield from self._told()
                self.is_behind = len(messages) == _BATCH
                waited = time.monotonic() - began
                if self._once and not self._has_all() and waited < _JOIN_SECONDS:
                    continue
                if not messages or waited > _ROUND_SECONDS:
                    break
            if self._has_new() and (self._once or stopping()):
                self._flush()
            yield from self._told()
        except Exception as error:
            # What was not committed comes again.
            self._give_up()
            yield from self._told()
            if isinstance(error, self._library.KafkaException):
                raise KafkaFault(masked(gist(str(error.args[0])))) from None
            raise
        except BaseException:
            self._give_up()
            raise
        if self._fault is not None:
            raise VmsonarError(self._fault)

    def close(self) -> None:
        """Leaves the group; what was not filed goes to another member."""
        self._give_up()

    def _open(self) -> None:
        callbacks = {"error_cb": self._on_error}
        self._consumer = self._library.Consumer(self._properties | callbacks, logger=silent_logger())
        self._consumer.subscribe(
            [self._topics], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._due = time.monotonic() + float(self._settings.every)

    def _told(self) -> Iterator[Receipt]:
        while self._receipts:
            yield self._receipts.pop(0)

    def _has_new(self) -> bool:
        """Whether there are messages to file, or offsets of what was set aside to commit."""
        return bool(self._stream.messages or self._offsets.keys() - self._held)

    def _take(self, message: Any) -> None:
        partition = (message.topic(), message.partition())
        if (error := message.error()) is not None:
            if error.code() == self._library.KafkaError._PARTITION_EOF:
                self._ended.add(partition)
            elif error.fatal():
                raise self._library.KafkaException(error)
            return
        self._ended.discard(partition)
        self._offsets[partition] = message.offset() + 1
        value = message.value() or b""
        try:
            headers = read_headers({name: text.decode() for name, text in message.headers() or ()})
            self._stream.add(partition[0].rpartition(".")[2], headers, value, partition)
        except (BadLine, UnicodeDecodeError, AttributeError) as error:
            name = f"{partition[0]}-{partition[1]}-{message.offset()}"
            refused = Refused("bad_record", str(error))
            self._receipts.append(self._intake.refuse_content(value, name, self.place, refused))

    def _flush(self) -> None:
        count = self._stream.messages
        filed = self._stream.flush()
        self._receipts += filed.refused
        if filed.records or filed.repeats:
            done = Receipt(
                accepted=True, name=f"{count} messages", records=filed.records, repeats=filed.repeats
            )
            self._receipts.append(done)
        self._held = filed.held
        # A record of which parts are missing has to come again as a whole after a crash.
        safe = [partition for partition in self._offsets if partition not in filed.held]
        if safe:
            made = self._library.TopicPartition
            self._consumer.commit(
                offsets=[made(*partition, self._offsets.pop(partition)) for partition in safe],
                asynchronous=False,
            )
        self._due = time.monotonic() + float(self._settings.every)
        if filed.failure is not None:
            raise filed.failure

    def _has_all(self) -> bool:
        return bool(self._assigned) and self._assigned <= self._ended

    def _give_up(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._forget()
        if consumer is not None:
            consumer.close()

    def _forget(self) -> None:
        self._stream = Stream(self._intake)
        self._held = frozenset()
        self._offsets.clear()
        self._ended.clear()
        self._assigned.clear()

    def _on_assign(self, _consumer: Any, partitions: list[Any]) -> None:
        self._assigned |= {(one.topic, one.partition) for one in partitions}

    def _on_revoke(self, consumer: Any, _partitions: list[Any]) -> None:
        """What is in hand is filed before another member goes on."""
        if self._consumer is not None and self._has_new():
            self._flush()
        self._forget()

    def _on_lost(self, _consumer: Any, _partitions: list[Any]) -> None:
        self._forget()

    def _on_error(self, error: Any) -> None:
        self._fault = f"cannot read from {self.place}: {masked(gist(error.str()))}"


def _properties(settings: CollectKafka) -> dict[str, Any]:
    """librdkafka's properties (its CONFIGURATION.md)."""
    if settings.auth != "none" and settings.tls.use == "none":
        raise UsageError("fleet.kafka.auth needs TLS: a password is not sent in the clear")
    return {
        "bootstrap.servers": ",".join(settings.brokers),
        "group.id": settings.group,
        "client.id": settings.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "topic.metadata.refresh.interval.ms": 10_000,
        "reconnect.backoff.ms": 250,
        "reconnect.backoff.max.ms": 10_000,
        "log_level": 0,
        **security(settings, settings.group, "fleet.kafka"),
    }
