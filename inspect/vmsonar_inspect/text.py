"""Names from an archive are written by strangers: makes them plain, printable text on one line."""

import unicodedata

# Categories that move the cursor, hide text or reorder it: controls, formats (bidi, zero width), surrogates,
# private use, unassigned, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: str | None, unknown: str = "\u2013") -> str:
    """The text with everything that a terminal would obey written as an escape."""
    if text is None:
        return unknown
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if unicodedata.category(char) in _UNSAFE else char for char in text)


def shorten(text: str, width: int) -> str:
    """At most that many characters, cut in the middle of nothing: the end goes, and is said to be gone."""
    if len(text) <= width:
        return text
    return text[: max(0, width - 1)] + "…"


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
