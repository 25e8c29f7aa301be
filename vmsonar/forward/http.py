"""Sends by HTTP POST, one body for many messages, in the order in which they were handed over (RFC 9110)."""

import re
import ssl
import time
from collections import deque
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
from vmsonar_archive.system import web
from vmsonar_archive.system.text import masked, without_query
from vmsonar_archive.system.web import Answer, ProxyRefused, Request

from vmsonar.forward.messages import Fate, ForwardMessage, Outcome, ReceiverRefused, Sender
from vmsonar.host.clock import Backoff, jitter

# Too large, or something in it that the server cannot take: alone or divided it may pass, and so may others.
_NOT_TAKEN = (400, 413, 422)
_LONGEST_WAIT = 300.0
_SHORTEST = 0.1


class JsonForm:
    """`{"records":[{"topic","key","headers","value"}, …]}`."""

    content_type = "application/json"

    def encode(self, message: ForwardMessage) -> bytes:
        head = {"topic": message.topic, "key": message.key, "headers": message.headers}
        return msgspec.json.encode(head)[:-1] + b',"value":' + message.value + b"}"

    def join(self, parts: list[bytes]) -> bytes:
        return b'{"records":[' + b",".join(parts) + b"]}"


class ProxyForm:
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


class HttpSender(Sender):
    """Retries what may succeed later, with growing random pauses; stops at what will not."""

    def __init__(self, endpoint: Endpoint, form: JsonForm | ProxyForm) -> None:
        self._endpoint = endpoint
        self._form = form
        self._backoff = Backoff()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._not_before = 0.0

    def submit(self, message: ForwardMessage, token: int) -> None:
        self._queue.append((token, self._form.encode(message)))

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

    def _next_batch(self) -> list[tuple[int, bytes]]:
        batch = [self._queue[0]]
        size = len(batch[0][1])
        for item in list(self._queue)[1:]:
            size += len(item[1]) + 1
            if size > self._endpoint.max_payload:
                break
            batch.append(item)
        return batch

    def _post(self, batch: list[tuple[int, bytes]]) -> list[Outcome]:
        endpoint = self._endpoint
        headers = {"Content-Type": self._form.content_type, "User-Agent": "vmsonar"}
        if endpoint.authorization:
            headers["Authorization"] = endpoint.authorization
        request = Request("POST", headers, self._form.join([part for _, part in batch]))
        seconds = min(endpoint.timeout, max(_SHORTEST, self.end - time.monotonic()))
        try:
            answer = web.ask(urlsplit(endpoint.url), request, seconds, endpoint.context)
        except OSError as error:
            self._check_final(error)
            return self._later(f"cannot reach {endpoint.shown}: {web.reason_of(error)}")
        if 200 <= answer.status < 300:
            return self._done(batch, Fate.ACKNOWLEDGED)
        return self._answered(answer, batch)

    def _answered(self, answer: Answer, batch: list[tuple[int, bytes]]) -> list[Outcome]:
        said = f"{self._endpoint.shown} answers {answer.status} {web.phrase(answer.status)}".rstrip()
        if web.may_pass(answer.status):
            return self._later(said, answer.headers.get("Retry-After"))
        detail = masked(answer.body, self._endpoint.secrets)
        said = f"{said} ({detail})" if detail else said
        if answer.status in _NOT_TAKEN:
            return self._done(batch, Fate.NOT_TAKEN, said)
        raise ReceiverRefused(f"{said}: check forward.url and the credentials")

    def _done(self, batch: list[tuple[int, bytes]], fate: Fate, detail: str = "") -> list[Outcome]:
        for _ in batch:
            self._queue.popleft()
        self.trouble = None
        self._backoff.reset()
        return [Outcome(token, fate, detail) for token, _ in batch]

    def _later(self, trouble: str, retry_after: str | None = None) -> list[Outcome]:
        wait = self._backoff.next()
        if retry_after is not None and re.fullmatch("[0-9]{1,9}", retry_after):
            wait = max(wait, min(_LONGEST_WAIT, int(retry_after) * jitter(1, 1.2)))
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
