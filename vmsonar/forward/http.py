"""Sends by HTTP POST, one body for many messages, in the order in which they were handed over (RFC 9110)."""

import http.client
import random
import ssl
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message as HttpHeaders
from typing import IO, Any

import msgspec

from vmsonar.forward.backoff import Backoff
from vmsonar.forward.messages import Message
from vmsonar.forward.sender import Fate, Outcome, Refused, Sender
from vmsonar.urls import without_query

_AGAIN = (408, 429)
_TOO_LARGE = 413
_LONGEST_WAIT = 300.0


class Form(ABC):
    """How messages stand in a body."""

    content_type: str

    @abstractmethod
    def encode(self, message: Message) -> bytes:
        """One message."""

    @abstractmethod
    def join(self, parts: list[bytes]) -> bytes:
        """The whole body."""


class JsonForm(Form):
    """`{"records":[{"topic","key","headers","value"}, …]}`."""

    content_type = "application/json"

    def encode(self, message: Message) -> bytes:
        head = {"topic": message.topic, "key": message.key, "headers": message.headers}
        return msgspec.json.encode(head)[:-1] + b',"value":' + message.value + b"}"

    def join(self, parts: list[bytes]) -> bytes:
        return b'{"records":[' + b",".join(parts) + b"]}"


class ProxyForm(Form):
    """The form of Sonar's HTTP proxy for Kafka: a header line and exactly so many bytes per message."""

    content_type = "application/octet-stream"

    def __init__(self, client: str, user: str, password: str) -> None:
        self._head = {"client": client, "sasl-user": user, "sasl-password": password}

    def encode(self, message: Message) -> bytes:
        head = {"topic": message.topic, "key": message.key, **self._head, "data-size": len(message.value)}
        return b"\n" + msgspec.json.encode(head) + b"\n" + message.value

    def join(self, parts: list[bytes]) -> bytes:
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to, how large, how long."""

    url: str
    authorization: str | None
    context: ssl.SSLContext | None
    max_payload: int
    timeout: float

    @property
    def shown(self) -> str:
        """The address without what could be secret in it."""
        return without_query(self.url)


class HttpSender(Sender):
    """Retries what may pass with time, with growing random waits; stops at what will not."""

    def __init__(
        self,
        endpoint: Endpoint,
        form: Form,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._form = form
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._queue: deque[tuple[int, bytes]] = deque()
        self._not_before = 0.0
        # Proxies come from HTTPS_PROXY and NO_PROXY. A redirect is not followed: it would take our secrets along.
        handlers: list[Any] = [_NoRedirects()]
        if endpoint.context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=endpoint.context))
        self._opener = urllib.request.build_opener(*handlers)

    def submit(self, message: Message, token: int) -> None:
        self._queue.append((token, self._form.encode(message)))

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._queue:
            self._sleep(seconds)
            return []
        pause = self._not_before - time.monotonic()
        if pause > 0:
            self._sleep(min(pause, seconds))
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
        try:
            self._send(self._form.join([part for _, part in batch]))
        except urllib.error.HTTPError as error:
            with error:
                return self._answered(error, batch)
        except (OSError, http.client.HTTPException) as error:
            self._check_final(error)
            return self._later(f"cannot reach {self._endpoint.shown}: {getattr(error, 'reason', error)}")
        return self._done(batch, Fate.ACKNOWLEDGED)

    def _send(self, body: bytes) -> None:
        request = urllib.request.Request(self._endpoint.url, body, method="POST")  # noqa: S310 - checked before
        request.add_header("Content-Type", self._form.content_type)
        request.add_header("User-Agent", "vmsonar")
        if self._endpoint.authorization:
            # Unredirected headers do not go to a proxy either.
            request.add_unredirected_header("Authorization", self._endpoint.authorization)
        with self._opener.open(request, timeout=self._endpoint.timeout) as answer:
            answer.read(65536)

    def _answered(self, error: urllib.error.HTTPError, batch: list[tuple[int, bytes]]) -> list[Outcome]:
        said = f"{self._endpoint.shown} answers {error.code} {error.reason}"
        if error.code == _TOO_LARGE:
            return self._done(batch, Fate.NOT_TAKEN, said)
        if error.code in _AGAIN or error.code >= 500:
            return self._later(said, error.headers.get("Retry-After"))
        raise Refused(f"{said}{_detail(error)}: check forward.url and the credentials")

    def _done(self, batch: list[tuple[int, bytes]], fate: Fate, detail: str = "") -> list[Outcome]:
        for _ in batch:
            self._queue.popleft()
        self.trouble = None
        self._backoff.reset()
        return [Outcome(token, fate, detail) for token, _ in batch]

    def _later(self, trouble: str, retry_after: str | None = None) -> list[Outcome]:
        wait = self._backoff.next()
        if retry_after is not None and retry_after.isdigit():
            wait = max(wait, min(_LONGEST_WAIT, int(retry_after) * random.uniform(1, 1.2)))  # noqa: S311
        self._not_before = time.monotonic() + wait
        self.trouble = trouble
        self.retried += 1
        return []

    def _check_final(self, error: Exception) -> None:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            said = reason.verify_message
            raise Refused(
                f"the certificate of {self._endpoint.shown} is not trusted ({said}): check forward.tls.ca_file"
            )
        if "Tunnel connection failed: 4" in str(reason):
            raise Refused(f"the proxy refuses {self._endpoint.shown} ({reason}): check HTTPS_PROXY")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HttpHeaders, newurl: str
    ) -> None:
        return None


def _detail(error: urllib.error.HTTPError) -> str:
    """The beginning of what the server says, on one line."""
    try:
        text = error.read(300).decode("utf-8", "replace")
    except OSError:
        return ""
    text = " ".join(text.split())
    return f" ({text})" if text and text.isprintable() else ""
