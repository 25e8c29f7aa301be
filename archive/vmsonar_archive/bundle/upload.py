"""Sends a bundle to a URL that was signed beforehand: HTTPS PUT, streamed, no redirects, nothing overwritten."""

import base64
import encodings.idna  # noqa: F401 - looked for by every connection, perhaps when it cannot be read any more
import hashlib
import http.client
import re
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from vmsonar_archive.bundle.write import Sink
from vmsonar_archive.errors import UsageError, VmsonarError

_TIMEOUT = 60.0
#: Seconds to wait before each further attempt.
PAUSES = (1.0, 3.0, 9.0)
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_MD5 = re.compile(r'(?:W/)?"?([0-9a-f]{32})"?')
_REPEAT = "nothing was acknowledged: run the same command again, with a new URL if this one has expired"


@dataclass(frozen=True, slots=True)
class Sent:
    """What went out, and whether the other side says that it has the same."""

    sha256: str
    size: int
    confirmed: bool


class _TryAgain(Exception):
    """What may go well the next time."""


class Digests:
    """Hashes and counts everything that passes on its way to a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.sha256 = hashlib.sha256()
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def send(self, data: bytes) -> None:
        self._sink(data)
        self.sha256.update(data)
        self.md5.update(data)
        self.size += len(data)


def shown(url: str) -> str:
    """A URL without whatever could be secret in it: only where it leads."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}/…"


def check_url(url: str) -> SplitResult:
    """Refuses what is not a plain HTTPS URL."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise UsageError("the URL cannot be understood") from None
    if parts.scheme != "https":
        raise UsageError("a bundle is sent by https:// or s3:// only")
    if not valid or parts.username or parts.password or re.search(r"[\x00-\x20\x7f]", url):
        raise UsageError(f"{shown(url)} is not a URL to send a bundle to: no user, no password, no spaces")
    return parts


def put(
    url: str,
    size: int,
    write: Callable[[Sink], object],
    sleep: Callable[[float], None] = time.sleep,
) -> Sent:
    """Sends what `write` produces, which must give the same bytes each time; tries again where that may help."""
    parts = check_url(url)
    where = shown(url)
    reason = ""
    for number, pause in enumerate((0.0, *PAUSES)):
        sleep(pause) if pause else None
        try:
            return _attempt(parts, where, size, write, repeated=number > 0)
        except _TryAgain as error:
            reason = str(error)
    raise VmsonarError(f"cannot send the bundle to {where}: {reason}; {_REPEAT}")


def _attempt(
    parts: SplitResult, where: str, size: int, write: Callable[[Sink], object], *, repeated: bool
) -> Sent:
    connection = _connect(parts)
    try:
        connection.putrequest("PUT", _target(parts), skip_accept_encoding=True)
        connection.putheader("Content-Length", str(size))
        connection.putheader("If-None-Match", "*")
        connection.endheaders()
        digests = Digests(connection.send)
        write(digests.send)
        answer = connection.getresponse()
        answer.read(65536)
    except (OSError, http.client.HTTPException) as error:
        answer_early = _early_answer(connection)
        if answer_early is None:
            raise _TryAgain(_reason(error)) from None
        answer = answer_early
    finally:
        connection.close()
    _judge(answer, where, repeated)
    return Sent(digests.sha256.hexdigest(), digests.size, _compare(parts, where, answer, digests))


def _connect(parts: SplitResult) -> http.client.HTTPSConnection:
    host, port = parts.hostname or "", parts.port or 443
    context = ssl.create_default_context()
    proxy = getproxies().get("https")
    if not proxy or proxy_bypass(host):
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)
    through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = http.client.HTTPSConnection(
        through.hostname or "", through.port or 3128, timeout=_TIMEOUT, context=context
    )
    connection.set_tunnel(host, port)
    return connection


def _target(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def _reason(error: Exception) -> str:
    """Never the text of an HTTP exception: it may hold the URL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "the connection ended before an answer"


def _early_answer(connection: http.client.HTTPSConnection) -> http.client.HTTPResponse | None:
    """What a server said before it closed the connection in the middle of our sending."""
    with suppress(OSError, http.client.HTTPException):
        if connection.sock is not None:
            connection.sock.settimeout(2)
            return connection.getresponse()
    return None


def _judge(answer: http.client.HTTPResponse, where: str, repeated: bool) -> None:
    status = answer.status
    if 200 <= status < 300:
        return
    if status in _AGAIN:
        raise _TryAgain(f"the server answers {status}")
    if 300 <= status < 400:
        raise VmsonarError(f"{where} redirects ({status}): redirects are not followed, ask for the final URL")
    if status in (409, 412):
        perhaps = "; perhaps the attempt before was stored after all" if repeated else ""
        raise VmsonarError(
            f"{where} has something under that name already, which is not overwritten{perhaps}"
        )
    raise VmsonarError(f"{where} refuses the bundle ({status}): {_REPEAT}")


def _compare(parts: SplitResult, where: str, answer: http.client.HTTPResponse, digests: Digests) -> bool:
    """Whether the server's own words about what it stored fit; False when it says nothing of use."""
    stored = _stored_md5(answer.headers)
    size, later = _ask(parts)
    stored = stored or later
    if size is not None and size != digests.size:
        raise _damaged(where, f"{size} of {digests.size} bytes")
    if stored is not None and stored != digests.md5.hexdigest():
        raise _damaged(where, "something else than was sent")
    return stored is not None


def _damaged(where: str, what: str) -> VmsonarError:
    return VmsonarError(f"{where} stored {what}: remove it there, then run the same command again")


def _stored_md5(headers: http.client.HTTPMessage) -> str | None:
    """The MD5 of what was stored, as S3 (ETag), Azure (Content-MD5) and Google (x-goog-hash) give it."""
    match = _MD5.fullmatch(headers.get("ETag", "").strip())
    if match and not headers.get("x-amz-server-side-encryption", "").startswith("aws:kms"):
        return match[1]
    texts = [headers.get("Content-MD5", "")]
    texts += [
        text.strip().removeprefix("md5=")
        for text in headers.get("x-goog-hash", "").split(",")
        if "md5=" in text
    ]
    for text in texts:
        with suppress(ValueError):
            if len(raw := base64.b64decode(text, validate=True)) == 16:
                return raw.hex()
    return None


def _ask(parts: SplitResult) -> tuple[int | None, str | None]:
    """Size and MD5 of what lies there now, where the URL lets us ask."""
    connection = _connect(parts)
    try:
        connection.request("HEAD", _target(parts))
        answer = connection.getresponse()
        length = answer.getheader("Content-Length", "")
        if answer.status != 200 or not length.isdigit():
            return None, None
        return int(length), _stored_md5(answer.headers)
    except (OSError, http.client.HTTPException):
        return None, None
    finally:
        connection.close()
