"""What is printed reaches its reader whatever the locale is, and although nobody may read."""

import codecs
import os
import sys
from typing import TextIO

#: Signs of our tables for terminals that have only ASCII; one for one, so that columns stay in line.
_IN_ASCII = str.maketrans("–…·•≥×µ°→▁▂▃▄▅▆▇█◀▶", "-..*>xuo>_.,-=+*#<>")  # noqa: RUF001
_PLAIN = "vmsonar_plain"


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_IN_ASCII)
    return text.encode("ascii", "replace").decode("ascii"), error.end


def prepare_streams() -> None:
    """Has standard output and error take every text; what was closed becomes nowhere."""
    codecs.register_error(_PLAIN, _plainly)
    sys.stdout = _prepared(sys.stdout)
    sys.stderr = _prepared(sys.stderr)


def _prepared(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if not _is_utf8(stream) and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=_PLAIN)
    return stream


def is_nowhere(stream: TextIO) -> bool:
    """Whether the stream was closed before we began."""
    return getattr(stream, "name", "") == os.devnull


def for_programs() -> TextIO:
    """Standard output for JSON and CSV, which are UTF-8 everywhere."""
    if not _is_utf8(sys.stdout) and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").replace("_", "") == "utf8"
