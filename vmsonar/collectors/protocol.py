"""What every companion speaks: one JSON object per line, tagged by its kind, over a stream socket.

Imports nothing of ours: a companion that needs little else stays small.
"""

from collections.abc import Callable
from typing import Any

import msgspec

#: A longer line is not ours.
MAX_LINE = 256 * 1024

_encode = msgspec.json.Encoder().encode


class WireMessage(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One line."""


def to_line(message: WireMessage) -> bytes:
    return _encode(message) + b"\n"


def line_reader(messages: Any) -> Callable[[bytes], Any]:
    """A function that gives the message in a line; None for what is not one of these: a newer side may say more."""
    decode = msgspec.json.Decoder(messages).decode

    def from_line(line: bytes) -> Any:
        try:
            return decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return None

    return from_line
