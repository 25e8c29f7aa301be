"""Makes foreign text safe to show: printable, truncated, and without secrets in URLs and in what servers answer."""

import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from urllib.parse import quote, quote_plus

#: Of a server's words this much is shown.
LONGEST = 200
# Looked at: enough for what is shown, whatever is masked in it.
_SEEN = 4096
# So many characters in a row that are a secret's too are part of it: servers quote the beginning of a token.
_PIECE = 8
# "Basic authentication" is a word, not a password.
_SHAPE = re.compile(
    r"\b(bearer|basic|digest|negotiate)(\s+|%20|\+)(?!(?-i:[a-z]+)(?:[\s.,;:)]|$))[A-Za-z0-9._~+/=%-]{4,}",
    re.IGNORECASE,
)
_HIDDEN = "***"
_WEB = re.compile(
    r"(?P<scheme>(?:[a-z]+\+)?https?://)(?:[^/?#]*@)?(?P<host>[^/?#]*)(?P<path>[^?#]*)(?P<query>.*)",
    re.DOTALL | re.IGNORECASE,
)


def printable(text: str, limit: int | None = None) -> str:
    """The text with all that a terminal would obey, or that hides or reorders text, written as an escape.

    Truncates with an ellipsis, so that at most `limit` characters are left.
    """
    seen = text if limit is None else text[: limit + 1]
    if not seen.isprintable():
        seen = "".join(char if char.isprintable() else _escaped(char) for char in seen)
    if limit is None or len(seen) <= limit:
        return seen
    return seen[: max(0, limit - 1)] + "…"


def plain(text: str | None, unknown: str = "\u2013") -> str:
    """The printable text, or a dash where nothing is known."""
    return unknown if text is None else printable(text)


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def masked(text: str | bytes, secrets: Iterable[str] = (), limit: int = LONGEST) -> str:
    """The beginning of a server's words on one line, without these secrets in any usual encoding."""
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    said = said[:_SEEN]
    hidden = bytearray(len(said))
    for form in {form for secret in secrets if secret for form in _forms(secret)}:
        _mark(said, form, hidden)
    for match in _SHAPE.finditer(said):
        hidden[match.end(2) : match.end()] = b"\x01" * (match.end() - match.end(2))
    return printable(" ".join(_without(said, hidden).split()), limit)


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, as it stands in a URL or in JSON, and as it stands in Base64 wherever it begins there."""
    yield from (secret, quote(secret, safe=""), quote(secret), quote_plus(secret))
    yield quote(secret, safe="").lower()
    yield secret.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/")
    raw = secret.encode()
    for shift in range(3):
        # Only the characters that all bits of come from the secret.
        encoded = b2a_base64(bytes(shift) + raw, newline=False).decode()
        inner = encoded[(shift * 8 + 5) // 6 : (shift + len(raw)) * 8 // 6]
        if len(inner) >= 4:
            yield inner
            yield inner.translate(str.maketrans("+/", "-_"))


def _mark(said: str, form: str, hidden: bytearray) -> None:
    size = min(_PIECE, len(form))
    for piece in {form[begin : begin + size] for begin in range(len(form) - size + 1)}:
        at = said.find(piece)
        while at >= 0:
            hidden[at : at + size] = b"\x01" * size
            at = said.find(piece, at + 1)


def _without(said: str, hidden: bytearray) -> str:
    runs = groupby(zip(hidden, said, strict=True), key=itemgetter(0))
    return "".join(_HIDDEN if is_hidden else "".join(char for _, char in run) for is_hidden, run in runs)


def where_it_leads(url: str) -> str:
    """The scheme and host of a URL, whose path and query may be signed or hold a token; other text as it is."""
    match = _WEB.fullmatch(url)
    if match is None:
        return url
    more = match["path"].strip("/") or match["query"]
    return f"{match['scheme']}{match['host']}{'/…' if more else match['path']}"


def without_query(url: str) -> str:
    """Keeps the path too, for the person who configured the URL and looks for a mistake in it."""
    match = _WEB.fullmatch(url)
    if match is None:
        return url
    return f"{match['scheme']}{match['host']}{match['path']}{'?…' if match['query'] else ''}"
