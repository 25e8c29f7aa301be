"""What a server says is cut, made printable, and holds none of our secrets in any encoding that servers use."""

import base64
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmsonar_archive.system.text import LONGEST, masked

TOKEN = "canary/T0ken+with=odd&signs"


@pytest.mark.parametrize(
    "echo",
    [
        TOKEN, f"Bearer {TOKEN}", quote(TOKEN, safe=""), quote(TOKEN, safe="").lower(), quote_plus(TOKEN),
        base64.b64encode(TOKEN.encode()).decode(), base64.urlsafe_b64encode(TOKEN.encode()).decode(),
        *(base64.b64encode(f"{user}:{TOKEN}".encode()).decode() for user in ("a", "ab", "abc")),
        TOKEN[:15], TOKEN.replace("/", "\\/"),
    ],
)  # fmt: skip
def test_no_encoding_comes_through(echo: str) -> None:
    said = masked(f"you sent «{echo}», which is wrong", [TOKEN])
    assert (
        said == "you sent «***», which is wrong"
        or said == "you sent «Bearer ***», which is wrong"
        or (
            # What stands before the secret in the same Base64 is not ours to hide, nor its padding.
            said.startswith("you sent «") and len(said) < len("you sent «», which is wrong") + 14
        )
    )
    for begin in range(len(TOKEN) - 8):
        assert TOKEN[begin : begin + 8] not in said


def test_shapes_are_masked_without_knowing_the_secret() -> None:
    assert masked("Authorization: Bearer eyJhbGciOi.J9 and Basic bWU6aHVzaA==") == (
        "Authorization: Bearer *** and Basic ***"
    )
    assert masked("got bearer secret-t0ken!") == "got bearer ***!"
    assert masked("Basic authentication is needed") == "Basic authentication is needed"


def test_terminals_obey_nothing_and_logs_stay_short() -> None:
    said = masked(b"\x1b[31mred\r\nnext\x07 \xff\xe2\x80\xae" + b"x" * 100_000)
    assert said.isprintable()
    assert said.startswith("\\x1b[31mred next")
    assert len(said) == LONGEST


@given(st.binary(max_size=300), st.lists(st.text(max_size=20), max_size=3), st.integers(0, 300))
def test_never_raises(text: bytes, secrets: list[str], limit: int) -> None:
    said = masked(text, secrets, limit)
    assert said.isprintable()
    assert len(said) <= max(limit, 1)


@given(st.text(min_size=8, max_size=40, alphabet=st.characters(min_codepoint=33, max_codepoint=126)))
def test_any_secret_is_hidden_between_any_words(secret: str) -> None:
    for echo in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]):
        assert echo not in masked(f"<<{echo}>>", [secret], 1000)
