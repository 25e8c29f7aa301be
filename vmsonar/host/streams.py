"""Makes standard output and error accept any text, whatever the locale and even when closed."""

import codecs
import io
import json
import os
import re
import sys
from typing import TextIO, cast

#: Signs of our tables for terminals that have only ASCII; one for one, so that columns stay in line.
_IN_ASCII = str.maketrans("–…·•≥×µ°→▁▂▃▄▅▆▇█◀▶", "-..*>xuo>_.,-=+*#<>")  # noqa: RUF001
_PLAIN = "vmsonar_plain"
#: Controls without line ends and tabs, formats that hide or reorder text, surrogates, private use.
_OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\uf8ff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U0010ffff]"
)


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
    return open(os.devnull, "w", encoding="utf-8") if stream is None else _configured(stream, errors=_PLAIN)


def is_nowhere(stream: TextIO) -> bool:
    """Whether the stream was closed before we began."""
    return getattr(stream, "name", "") == os.devnull


class _Screen(io.TextIOBase):
    """Has a terminal show what it would obey in JSON or CSV, as an escape of JSON: the data stay the same there."""

    def write(self, text: str) -> int:
        return sys.stdout.write(_OBEYED.sub(lambda found: json.dumps(found[0])[1:-1], text))

    def isatty(self) -> bool:
        return True


def for_programs() -> TextIO:
    """Standard output for JSON and CSV, which are UTF-8 everywhere; a terminal is shown nothing that it would obey."""
    if sys.stdout.isatty():
        return cast(TextIO, _Screen())
    return _configured(sys.stdout, encoding="utf-8")


def _configured(stream: TextIO, **otherwise: str) -> TextIO:
    """The stream as it is if it takes UTF-8, and else with these settings."""
    is_utf8 = (stream.encoding or "").lower().replace("-", "").replace("_", "") == "utf8"
    if not is_utf8 and hasattr(stream, "reconfigure"):
        stream.reconfigure(**otherwise)
    return stream
