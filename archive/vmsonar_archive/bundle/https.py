"""Connections to HTTPS servers: certificates checked, proxies obeyed, nothing secret in what is said about them."""

import base64
import encodings.idna  # noqa: F401 - looked for by every connection, perhaps when it cannot be read any more
import http.client
import re
import ssl
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from vmsonar_archive.errors import UsageError

_PROXY_PORT = 3128


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
    if not valid or parts.username or parts.password or re.search(r"[^\x21-\x7e]", url):
        raise UsageError(f"{shown(url)} is not a URL to send a bundle to: no user, no password, no spaces")
    return parts


def connect(parts: SplitResult, timeout: float) -> http.client.HTTPSConnection:
    """A connection, not opened yet; through a proxy where the environment names one (HTTPS_PROXY, NO_PROXY)."""
    host, port = parts.hostname or "", parts.port or 443
    context = ssl.create_default_context()
    proxy = getproxies().get("https")
    if not proxy or proxy_bypass(f"{host}:{port}"):
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = http.client.HTTPSConnection(
        through.hostname or "", through.port or _PROXY_PORT, timeout=timeout, context=context
    )
    connection.set_tunnel(host, port, _proxy_headers(through))
    return connection


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    known = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(known.encode()).decode()}"}


def request_target(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def reason_of(error: Exception) -> str:
    """Never the text of an HTTP exception: it may hold the URL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, OSError):
        return error.strerror or str(error).splitlines()[0][:100] or type(error).__name__
    return "the connection ended before an answer"
