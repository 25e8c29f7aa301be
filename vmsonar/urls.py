"""What may be said of a URL in records, logs and status: where it leads, never what it lets one do."""

import re

_WEB = re.compile(
    r"(?P<scheme>(?:[a-z]+\+)?https?://)(?:[^/?#]*@)?(?P<host>[^/?#]*)(?P<path>[^?#]*)(?P<query>.*)",
    re.DOTALL | re.IGNORECASE,
)


def where_it_leads(url: str) -> str:
    """Scheme and host of a web address, whose path and query may be signed or hold a token; else the text as it is."""
    match = _WEB.fullmatch(url)
    if match is None:
        return url
    more = match["path"].strip("/") or match["query"]
    return f"{match['scheme']}{match['host']}{'/…' if more else match['path']}"


def without_query(url: str) -> str:
    """The same with its path, for the one who set it and looks for a mistake in it."""
    match = _WEB.fullmatch(url)
    if match is None:
        return url
    return f"{match['scheme']}{match['host']}{match['path']}{'?…' if match['query'] else ''}"
