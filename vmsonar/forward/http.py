"""Sends by HTTP POST, one body for many messages, in the order in which they were handed over (RFC 9110)."""

import re
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from vmsonar_archive.system import web
from vmsonar_archive.system.text import masked, without_query
from vmsonar_archive.system.web import Answer, ProxyRefused, Request

from vmsonar.forward.messages import Fate, ForwardMessage, Outcome, ReceiverRefused, Sender
from vmsonar.host.clock import Backoff, jitter

# Too large, or something in it that the server cannot take: alone or divided it may pass, and so may others.
_NOT_TAKEN = (400, 413, 422)
# There is nothing at that address, or nothing that one can post to.
_NO_SUCH_PLACE = (404, 405, 501)
_LONGEST_WAIT = 300.0
_SHORTEST = 0.1


class Form(ABC):
    """How messages become the body of one POST, and what answers mean."""

    content_type: str
    #: The Content-Encoding, where there is one.
    encoding: str | None = None

    @abstractmethod
    def encode(self, message: ForwardMessage) -> bytes:
        """One message's part of a body."""

    @abstractmethod
    def join(self, parts: list[bytes]) -> bytes:
        """The body."""

    def url(self, base: str, topic: str) -> str:
        """Where messages of a topic go; messages for different addresses do not share a body."""
        return base

    def may_pass(self, status: int) -> bool:
        """Whether the same may be taken later."""
        return web.may_pass(status)

    def may_lack(self, url: str) -> bool:
        """Whether a receiver is of use without the address."""
        return False

    def rejected(self, answer: Answer) -> tuple[int, str]:
        """How much of the body a receiver did not take that took it, and its words on that."""
        return 0, ""


class JsonForm(Form):
    """`{"records":[{"topic","key","headers","value"}, …]}`."""

    content_type = "application/json"

    def encode(self, message: ForwardMessage) -> bytes:
        head = {"topic": message.topic, "key": message.key, "headers": message.headers}
        return msgspec.json.encode(head)[:-1] + b',"value":' + message.value + b"}"

    def join(self, parts: list[bytes]) -> bytes:
        return b'{"records":[' + b",".join(parts) + b"]}"


class ProxyForm(Form):
    """The form of Sonar's HTTP proxy for Kafka: per message a header line, then exactly `data-size` bytes."""

    content_type = "application/octet-stream"

    def __init__(self, client: str, user: str, password: str) -> None:
        self._head = {"client": client, "sasl-user": user, "sasl-password": password}

    def encode(self, message: ForwardMessage) -> bytes:
        head = {"topic": message.topic, "key": message.key, **self._head, "data-size": len(message.value)}
        return b"\n" + msgspec.json.encode(head) + b"\n" + message.value

    def join(self, parts: list[bytes]) -> bytes:
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address, with its credentials and limits."""

    url: str
    authorization: str | None
    context: ssl.SSLContext | None
    max_payload: int
    timeout: float
    #: Removed from anything we quote of the server's answer.
    secrets: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The address without what could be secret in it."""
        return without_query(self.url)


class _Queued(NamedTuple):
    """One message as its part of a body, and the number of its record."""

    url: str
    token: int
    part: bytes
    seq: str


class HttpSender(Sender):
    """Retries what may succeed later, with growing random pauses; stops at what will not."""

    def __init__(self, endpoint: Endpoint, form: Form) -> None:
        self._endpoint = endpoint
        self._form = form
        self._backoff = Backoff()
        self._queue: deque[_Queued] = deque()
        self._not_before = 0.0

    def submit(self, message: ForwardMessage, token: int) -> None:
        url = self._form.url(self._endpoint.url, message.topic)
        self._queue.append(_Queued(url, token, self._form.encode(message), message.headers.get("seq", "")))

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._queue:
            time.sleep(seconds)
            return []
        pause = self._not_before - time.monotonic()
        if pause > 0:
            time.sleep(min(pause, seconds))
            return []
        return self._post(self._next_batch())

    def close(self) -> list[Outcome]:
        self._queue.clear()
        return []

    def _next_batch(self) -> list[_Queued]:
        batch = [self._queue[0]]
        size = len(batch[0].part)
        for item in list(self._queue)[1:]:
            size += len(item.part) + 1
            if size > self._endpoint.max_payload or item.url != batch[0].url:
                break
            batch.append(item)
        return batch

    def _post(self, batch: list[_Queued]) -> list[Outcome]:
        endpoint = self._endpoint
        headers = {"Content-Type": self._form.content_type, "User-Agent": "vmsonar"}
        if endpoint.authorization:
            headers["Authorization"] = endpoint.authorization
        if self._form.encoding:
            headers["Content-Encoding"] = self._form.encoding
        request = Request("POST", headers, self._form.join([one.part for one in batch]))
        seconds = min(endpoint.timeout, max(_SHORTEST, self.end - time.monotonic()))
        try:
            answer = web.ask(urlsplit(batch[0].url), request, seconds, endpoint.context)
        except OSError as error:
            self._check_final(error)
            return self._later(f"cannot reach {endpoint.shown}: {web.reason_of(error)}")
        if 200 <= answer.status < 300:
            return self._taken(answer, batch)
        return self._answered(answer, batch)

    def _taken(self, answer: Answer, batch: list[_Queued]) -> list[Outcome]:
        count, said = self._form.rejected(answer)
        said = masked(said, self._endpoint.secrets)
        outcomes = self._done(batch, Fate.ACKNOWLEDGED)
        if count:
            # It says of how many, not of which.
            said = f"{count} points or records were not taken{f' ({said})' if said else ''}"
            said += f", of {len(batch)} messages in one POST, from record {batch[0].seq} on"
        if said:
            fate = Fate.PARTLY if count else Fate.ACKNOWLEDGED
            outcomes[-1] = Outcome(outcomes[-1].token, fate, said, count)
        return outcomes

    def _answered(self, answer: Answer, batch: list[_Queued]) -> list[Outcome]:
        said = f"{self._endpoint.shown} answers {answer.status} {web.phrase(answer.status)}".rstrip()
        if self._form.may_pass(answer.status):
            return self._later(said, answer.headers.get("Retry-After"))
        detail = masked(answer.body, self._endpoint.secrets)
        said = f"{said} ({detail})" if detail else said
        if answer.status in _NOT_TAKEN:
            return self._done(batch, Fate.NOT_TAKEN, said)
        if answer.status in _NO_SUCH_PLACE and self._form.may_lack(batch[0].url):
            return self._done(batch, Fate.UNWANTED, said)
        raise ReceiverRefused(f"{said}: check forward.url and the credentials")

    def _done(self, batch: list[_Queued], fate: Fate, detail: str = "") -> list[Outcome]:
        for _ in batch:
            self._queue.popleft()
        self.trouble = None
        self._backoff.reset()
        return [Outcome(one.token, fate, detail) for one in batch]

    def _later(self, trouble: str, retry_after: str | None = None) -> list[Outcome]:
        wait = self._backoff.next()
        if retry_after is not None:
            wait = max(wait, min(_LONGEST_WAIT, _seconds(retry_after) * jitter(1, 1.2)))
        self._not_before = time.monotonic() + wait
        self.trouble = trouble
        self.retried += 1
        return []

    def _check_final(self, error: OSError) -> None:
        shown = self._endpoint.shown
        if isinstance(error, ssl.SSLCertVerificationError):
            said = error.verify_message
            raise ReceiverRefused(
                f"the certificate of {shown} is not trusted ({said}): check forward.tls.ca_file"
            )
        if isinstance(error, ProxyRefused) and 400 <= error.status < 500:
            raise ReceiverRefused(f"the proxy refuses {shown} ({error}): check HTTPS_PROXY")


def _seconds(retry_after: str) -> float:
    """How long to wait: RFC 9110, section 10.2.3, has seconds or a date; 0 for anything else."""
    if re.fullmatch("[0-9]{1,9}", retry_after):
        return int(retry_after)
    with suppress(ValueError, OverflowError):
        return parsedate_to_datetime(retry_after).replace(tzinfo=UTC).timestamp() - time.time()
    return 0
