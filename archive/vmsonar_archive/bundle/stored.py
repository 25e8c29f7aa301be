"""What a server says about an object that it has: its size, and the MD5 of its content."""

import base64
import http.client
import re
from contextlib import suppress
from urllib.parse import SplitResult

from vmsonar_archive.bundle.https import connect, request_target

_TIMEOUT = 20.0
_MD5 = re.compile(r'(?:W/)?"?([0-9a-f]{32})"?')


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
    connection = connect(parts, _TIMEOUT)
    try:
        connection.request("HEAD", request_target(parts))
        answer = connection.getresponse()
        length = answer.getheader("Content-Length", "")
        if answer.status != 200 or not length.isdigit():
            return None, None
        return int(length), stored_md5(answer.headers)
    except (OSError, http.client.HTTPException):
        return None, None
    finally:
        connection.close()
