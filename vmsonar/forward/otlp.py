"""Forwarding as OTLP over HTTP: what a sample becomes, and what a collector's answers mean."""

import gzip
from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from vmsonar_archive.dialect import otlp
from vmsonar_archive.dialect.places import Carried
from vmsonar_archive.dialect.subjects import Described, Observer
from vmsonar_archive.format.layout import SYSINFO
from vmsonar_archive.format.lines import BadLine
from vmsonar_archive.system.errors import NOT_JSON
from vmsonar_archive.system.web import Answer

from vmsonar import __version__
from vmsonar.forward.http import Form
from vmsonar.forward.messages import ForwardMessage
from vmsonar.forward.present import FIRST
from vmsonar.forward.tail import Record
from vmsonar.forward.translate import Translator, packed

METRICS, LOGS = "metrics", "logs"
# Status codes after which the same may be sent again (opentelemetry.io/docs/specs/otlp, "Retryable Response Codes").
_RETRYABLE = (429, 502, 503, 504)
_decode_infos = msgspec.json.Decoder(Described).decode


class OtlpForm(Form):
    """Protobuf in gzip; metrics and logs have addresses of their own below the configured one."""

    content_type = "application/x-protobuf"
    encoding = "gzip"

    def encode(self, message: ForwardMessage) -> bytes:
        return message.value

    def join(self, parts: list[bytes]) -> bytes:
        return gzip.compress(b"".join(parts), 1)

    def url(self, base: str, topic: str) -> str:
        place = urlsplit(base)
        return urlunsplit(place._replace(path=f"{place.path.rstrip('/')}/v1/{topic}"))

    def may_pass(self, status: int) -> bool:
        return status in _RETRYABLE

    def may_lack(self, url: str) -> bool:
        # Many receivers are a store of metrics and nothing else.
        return urlsplit(url).path.endswith(f"/v1/{LOGS}")

    def rejected(self, answer: Answer) -> tuple[int, str]:
        return otlp.rejected(answer.body)


class OtlpTranslator(Translator):
    """Metrics of every sample, and its events as logs."""

    def __init__(self, archive: str, places: int, carried: Carried | None, *rest: Any) -> None:
        super().__init__(*rest)
        self._archive = archive if self._redactor is None else self._redactor.identifier(archive)
        self._observer = Observer(places)
        self._carried = carried
        #: The last samples that were passed over.
        self._passed: deque[bytes] = deque(maxlen=FIRST)

    def split(self, value: bytes, limit: int) -> list[bytes]:
        sized = [(part, len(part)) for part in otlp.parts(value)]
        return [b"".join(group) for group in packed(sized, limit)]

    def learn(self, record: Record) -> None:
        super().learn(record)
        if record.kind == SYSINFO:
            self._observer.learn_machine(self._sysinfo(record.line))
            return
        try:
            self._observer.learn(
                _decode_infos(record.line) if self._redactor is None else self._sample(record.line)
            )
        except NOT_JSON as error:
            raise BadLine(str(error)) from None
        self._passed.append(record.line)

    @property
    def carried(self) -> Carried:
        return self._carried or self._observer.carried

    def _resume(self, carried: Carried) -> None:
        """Goes on as after the last acknowledged sample: with its places, starts, sums and counters."""
        samples = []
        for line in self._passed:
            with suppress(BadLine):
                samples.append(self._selection.of(self._sample(line)))
        self._observer.resume(carried, samples)
        self._carried = None

    def translate(self, record: Record) -> bytes | None:
        if record.kind == SYSINFO:
            self.learn(record)
            return None
        sample = self._sample(record.line)
        if self._carried is not None:
            self._resume(self._carried)
        observer = self._observer
        shown = self._selection.of(sample)
        observer.learn(sample)
        observer.observe(shown)
        described = otlp.resource(observer, self._archive, self.node_at(record.stamp.seq))
        logs = otlp.logs_of(shown)
        self._more = [(LOGS, otlp.logs_body(described, logs, observer.time, __version__))] if logs else []
        return otlp.metrics_body(described, otlp.metrics_of(observer), __version__)
