"""Text that a stranger wrote is shown, never obeyed."""

import pytest
from vmsonar_archive.system.text import printable


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("python train.py", "python train.py"),
        ("Grüße, 世界 ✓", "Grüße, 世界 ✓"),
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\x9b31m\x7f\x85", "\\x9b31m\\x7f\\x85"),
        ("a\nb\r\tc\u2028d", "a\\x0ab\\x0d\\x09c\\u2028d"),
        ("\u202egpj.exe\u2066\u200b", "\\u202egpj.exe\\u2066\\u200b"),
        ("\udc9b", "\\udc9b"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_shows_what_a_terminal_would_obey(foreign: str, shown: str) -> None:
    assert printable(foreign) == shown
    assert printable(foreign).isprintable()


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("\x1b" * 9, 5, "\\x1b…"), ("ab", 1, "…"), ("", 0, "")],
)
def test_cuts_what_is_too_long(text: str, limit: int, shown: str) -> None:
    assert printable(text, limit) == shown


def test_takes_no_longer_than_the_limit_asks_for() -> None:
    assert len(printable("\x1b" * 50_000_000, 100)) == 100
