"""Asks an endpoint for a signed URL, a fresh one for every attempt, and says when a signed URL ends."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import msgspec

from vmsonar_archive.system import web
from vmsonar_archive.system.errors import NOT_JSON, UsageError, VmsonarError
from vmsonar_archive.system.text import where_it_leads
from vmsonar_archive.system.web import Request, check_url

SCHEME = "mint+"
_SECONDS = 10.0
_MOST = 64 * 1024
_HEADER = re.compile(r"[A-Za-z0-9-]{1,80}")
_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_MOST_HEADERS = 20
#: What says how long a request is, where it goes or who asks is ours to say.
_OURS = {"connection", "content-length", "expect", "host", "if-none-match", "keep-alive", "te", "trailer",
         "transfer-encoding", "upgrade"}  # fmt: skip
_STAMP = "%Y%m%dT%H%M%SZ"


class TryAgain(Exception):
    """A failure that the next attempt may not meet."""


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


def refuse_redirect(status: int, where: str) -> None:
    if 300 <= status < 400:
        raise VmsonarError(f"{where} redirects ({status}): redirects are not followed, ask for the final URL")


def ask(mint: Mint, name: str, size: int | None, now: datetime | None = None) -> Place:
    """A place for something of this name and size."""
    where = where_it_leads(mint.url)
    status, body = _post(mint, where, name, size)
    if web.may_pass(status):
        raise TryAgain(f"{where} gives no URL: it answers {status}")
    refuse_redirect(status, where)
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
    ends = min(filter(None, (place.expires, expiry(place.url))), default=None)
    if ends is not None and ends <= now:
        raise VmsonarError(
            f"{where} answers with a URL that expired at {ends:%Y-%m-%d %H:%M:%S}Z: compare the clocks of both"
        )
    return msgspec.structs.replace(place, expires=ends)


def expiry(url: str) -> datetime | None:
    """AWS and Google by their own parameters, older ones by Expires, Azure by se; None where nothing is said."""
    query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    readers: tuple[Callable[[dict[str, str]], datetime], ...] = (
        lambda fields: _after(fields["x-amz-date"], fields["x-amz-expires"]),
        lambda fields: _after(fields["x-goog-date"], fields["x-goog-expires"]),
        lambda fields: datetime.fromtimestamp(int(fields["expires"]), UTC),
        lambda fields: datetime.fromisoformat(fields["se"]),
    )
    for read in readers:
        try:
            found = read(query)
        except (KeyError, ValueError, OverflowError, OSError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _after(begin: str, seconds: str) -> datetime:
    return datetime.strptime(begin, _STAMP).replace(tzinfo=UTC) + timedelta(seconds=int(seconds))


def _post(mint: Mint, where: str, name: str, size: int | None) -> tuple[int, bytes]:
    parts = check_url(mint.url)
    question = {"archive": mint.archive, "node": mint.node, "name": name, "size": size}
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if mint.token is not None:
        headers["Authorization"] = f"Bearer {mint.token}"
    request = Request("POST", headers, msgspec.json.encode(question), most=_MOST + 1)
    try:
        answer = web.ask(parts, request, _SECONDS)
    except OSError as error:
        raise TryAgain(f"{where} gives no URL: {web.reason_of(error)}") from None
    return answer.status, answer.body


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
