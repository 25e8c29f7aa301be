"""Asks an endpoint for a signed URL, a fresh one for every attempt to send something.

The question is a POST of {"archive", "node", "name", "size"}; the answer {"url", "headers"?, "expires"?}.
"""

import http.client
import re
from datetime import UTC, datetime

import msgspec

from vmsonar_archive.bundle.expiry import expiry
from vmsonar_archive.bundle.https import check_url, connect, reason_of, request_target, shown
from vmsonar_archive.errors import NOT_JSON, UsageError, VmsonarError

SCHEME = "mint+"
_TIMEOUT = 10.0
_MOST = 64 * 1024
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_HEADER = re.compile(r"[A-Za-z0-9-]{1,80}")
_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_MOST_HEADERS = 20
#: What says how long a request is, where it goes or who asks is ours to say.
_OURS = {"connection", "content-length", "expect", "host", "if-none-match", "keep-alive", "te", "trailer",
         "transfer-encoding", "upgrade"}  # fmt: skip


class TryAgain(Exception):
    """What may go well the next time."""


class Mint(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to ask, and on whose behalf."""

    #: The endpoint, https:// only.
    url: str
    #: Sent as a bearer token; never shown.
    token: str | None = None
    archive: str
    node: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where something can be put, once."""

    url: str
    headers: dict[str, str] = {}
    expires: datetime | None = None


def endpoint(text: str) -> str:
    """The URL in mint+https://…; refuses what is none."""
    url = text.removeprefix(SCHEME)
    check_url(url)
    return url


def ask(mint: Mint, name: str, size: int | None, now: datetime | None = None) -> Place:
    """A place for something of this name and size."""
    where = shown(mint.url)
    status, body = _post(mint, where, name, size)
    if status in _AGAIN:
        raise TryAgain(f"{where} gives no URL: it answers {status}")
    if 300 <= status < 400:
        raise VmsonarError(f"{where} redirects ({status}): redirects are not followed, ask for the final URL")
    if status in (401, 403):
        raise VmsonarError(f"{where} gives us no URL ({status}): look at save.token_file")
    if status not in (200, 201):
        raise VmsonarError(f"{where} gives no URL: it answers {status}")
    return check(_decoded(body, where), where, now or datetime.now(UTC))


def check(place: Place, where: str, now: datetime) -> Place:
    """Refuses what no careful client would follow."""
    try:
        check_url(place.url)
    except UsageError:
        raise VmsonarError(f"{where} answers with something else than a plain https:// URL") from None
    for name, value in place.headers.items():
        refused = name.lower() in _OURS or name.lower().startswith("proxy-")
        if refused or not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            raise VmsonarError(f"{where} answers with a header that is not for others to set")
    if len(place.headers) > _MOST_HEADERS:
        raise VmsonarError(f"{where} answers with more than {_MOST_HEADERS} headers")
    known = [end for end in (place.expires, expiry(place.url)) if end is not None]
    ends = min(known, default=None)
    if ends is not None and ends <= now:
        raise VmsonarError(
            f"{where} answers with a URL that expired at {ends:%Y-%m-%d %H:%M:%S}Z: compare the clocks of both"
        )
    return Place(url=place.url, headers=place.headers, expires=ends)


def _post(mint: Mint, where: str, name: str, size: int | None) -> tuple[int, bytes]:
    parts = check_url(mint.url)
    question = {"archive": mint.archive, "node": mint.node, "name": name, "size": size}
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if mint.token is not None:
        headers["Authorization"] = f"Bearer {mint.token}"
    connection = connect(parts, _TIMEOUT)
    try:
        connection.request("POST", request_target(parts), msgspec.json.encode(question), headers)
        answer = connection.getresponse()
        body = answer.read(_MOST + 1)
    except (OSError, http.client.HTTPException) as error:
        raise TryAgain(f"{where} gives no URL: {reason_of(error)}") from None
    finally:
        connection.close()
    return answer.status, body


class _Answer(msgspec.Struct):
    url: str
    headers: dict[str, str] | None = None
    expires: datetime | None = None


def _decoded(body: bytes, where: str) -> Place:
    if len(body) > _MOST:
        raise VmsonarError(f"{where} answers with more than {_MOST // 1024} KiB where a URL was asked for")
    try:
        said = msgspec.json.decode(body, type=_Answer)
    except NOT_JSON:
        raise VmsonarError(f'{where} answers with something else than {{"url": …}} in JSON') from None
    ends = said.expires
    if ends is not None and ends.tzinfo is None:
        ends = ends.replace(tzinfo=UTC)
    return Place(url=said.url, headers=said.headers or {}, expires=ends)
