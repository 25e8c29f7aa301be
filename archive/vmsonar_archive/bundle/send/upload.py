"""Sends a bundle to a URL that was signed beforehand (HTTPS PUT, streamed), and checks what the server has."""

import base64
import hashlib
import http.client
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult

from vmsonar_archive.bundle.send.mint import Place, TryAgain, refuse_redirect
from vmsonar_archive.bundle.write import Sink
from vmsonar_archive.system import web
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.text import where_it_leads
from vmsonar_archive.system.web import Answer, Request, check_url

_ANSWER_SECONDS = 20.0
_MD5 = re.compile(r'(?:W/)?"?([0-9a-f]{32})"?')
#: For everything but the transfer of the bundle itself, which gets time by its size.
_SECONDS = 60.0
#: Seconds to wait before each further attempt.
PAUSES = (1.0, 3.0, 9.0)
_TAKEN = {409, 412}
_REPEAT = "nothing was acknowledged: run the same command again, with a new URL if this one has expired"

#: Produces the bundle; must give the same bytes each time.
Write = Callable[[Sink], object]


def stored_md5(headers: http.client.HTTPMessage) -> str | None:
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


def ask_stored(parts: SplitResult) -> tuple[int | None, str | None]:
    """Size and MD5 of what lies there now, where the URL lets us ask."""
    try:
        answer = web.ask(parts, Request("HEAD"), _ANSWER_SECONDS)
    except OSError:
        return None, None
    length = answer.headers.get("Content-Length", "")
    if answer.status != 200 or not re.fullmatch("[0-9]{1,18}", length):
        return None, None
    return int(length), stored_md5(answer.headers)


@dataclass(frozen=True, slots=True)
class Sent:
    """What went out, where to, and whether the other side says that it has the same."""

    sha256: str
    confirmed: bool
    #: Without secrets.
    where: str


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

    def sent_to(self, where: str, *, confirmed: bool) -> Sent:
        return Sent(self.sha256.hexdigest(), confirmed, where)


def digests_of(write: Write) -> Digests:
    """What would be sent, without sending it."""
    digests = Digests(lambda _data: None)
    write(digests.send)
    return digests


class Upload:
    """One bundle on its way; `place` says where to, anew for each attempt."""

    def __init__(
        self, place: Callable[[], Place], size: int, write: Write, *, fresh_places: bool = False
    ) -> None:
        self._place = place
        self._size = size
        self._write = write
        #: A refused URL is worth another attempt only if the next one is another.
        self._fresh = fresh_places

    def put(self, pauses: Sequence[float] = PAUSES, sleep: Callable[[float], None] = time.sleep) -> Sent:
        """Sends it; tries again where that may help."""
        reason = ""
        for pause in (0.0, *pauses):
            sleep(pause) if pause else None
            try:
                return self._attempt(self._place())
            except TryAgain as error:
                reason = str(error)
        raise VmsonarError(f"cannot send the bundle: {reason}; {_REPEAT}")

    def _attempt(self, place: Place) -> Sent:
        parts, where = check_url(place.url), where_it_leads(place.url)
        digests = Digests(lambda _data: None)

        def stream(sink: Sink) -> None:
            nonlocal digests
            digests = Digests(sink)
            self._write(digests.send)

        headers = {"If-None-Match": "*", **place.headers}
        try:
            answer = web.ask(parts, Request("PUT", headers, stream=stream, size=self._size), _SECONDS)
        except OSError as error:
            raise TryAgain(f"{where}: {web.reason_of(error)}") from None
        if answer.status in _TAKEN:
            return self._is_ours(parts, where, answer, digests)
        self._judge(answer.status, where)
        if digests.size != self._size:
            raise TryAgain(f"{where} answers before it has everything")
        return digests.sent_to(where, confirmed=_compare(parts, where, answer, digests))

    def _is_ours(self, parts: SplitResult, where: str, answer: Answer, digests: Digests) -> Sent:
        """What has that name already may be what an attempt stored whose acknowledgement was lost."""
        md5 = stored_md5(answer.headers) or ask_stored(parts)[1]
        if md5 is not None:
            whole = digests if digests.size == self._size else digests_of(self._write)
            if md5 == whole.md5.hexdigest():
                return whole.sent_to(where, confirmed=True)
        perhaps = "" if md5 else "; it does not say whether that is what an earlier attempt sent"
        raise VmsonarError(
            f"{where} has something under that name already, which is not overwritten{perhaps}"
        )

    def _judge(self, status: int, where: str) -> None:
        if 200 <= status < 300:
            return
        if web.may_pass(status) or (self._fresh and status in (400, 401, 403)):
            raise TryAgain(f"{where} answers {status}")
        refuse_redirect(status, where)
        raise VmsonarError(f"{where} refuses the bundle ({status}): {_REPEAT}")


def _compare(parts: SplitResult, where: str, answer: Answer, digests: Digests) -> bool:
    """Whether the server's own words about what it stored fit; False when it says nothing of use."""
    stored = stored_md5(answer.headers)
    size, later = ask_stored(parts)
    stored = stored or later
    if size is not None and size != digests.size:
        raise _damaged(where, f"{size} of {digests.size} bytes")
    if stored is not None and stored != digests.md5.hexdigest():
        raise _damaged(where, "something else than was sent")
    return stored is not None


def _damaged(where: str, what: str) -> VmsonarError:
    return VmsonarError(f"{where} stored {what}: remove it there, then run the same command again")
