"""The units and sensitivities a field declares in its type, and the base of every row."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta


class Sensitivity(StrEnum):
    """What a field may give away; redaction goes by this."""

    NONE = "none"
    USER = "user"
    HOST = "host"
    COMMAND = "command"
    PATH = "path"
    LABEL = "label"


def _unit(name: str) -> Meta:
    return Meta(extra={"unit": name})


def about(meaning: str, sensitivity: Sensitivity = Sensitivity.NONE) -> Meta:
    """Says in one line what a field means and where it comes from."""
    return Meta(description=meaning, extra={"sensitivity": sensitivity.value})


# Integers: what the kernel or the driver counted, unchanged. All fit int64.
Count = Annotated[int, _unit("count")]
Ident = Annotated[int, _unit("id")]
Bytes = Annotated[int, _unit("bytes")]
Sectors = Annotated[int, _unit("sectors of 512 bytes")]
Ticks = Annotated[int, _unit("ticks")]
Nanoseconds = Annotated[int, _unit("nanoseconds")]
Microseconds = Annotated[int, _unit("microseconds")]
Milliseconds = Annotated[int, _unit("milliseconds")]
Microjoules = Annotated[int, _unit("microjoules")]
Millijoules = Annotated[int, _unit("millijoules")]
Megahertz = Annotated[int, _unit("megahertz")]
KilobytesPerSecond = Annotated[int, _unit("kilobytes per second")]
Bitmask = Annotated[int, _unit("bit mask")]

# Numbers that are fractions at their source.
Seconds = Annotated[float, _unit("seconds")]
Percent = Annotated[float, _unit("percent")]
Watts = Annotated[float, _unit("watts")]
Celsius = Annotated[float, _unit("degrees celsius")]
Load = Annotated[float, _unit("tasks")]

Text = Annotated[str, _unit("text")]
Identifier = Annotated[str, _unit("id")]
Choice = Annotated[str, _unit("choice")]
Flag = Annotated[bool, _unit("flag")]
Time = Annotated[datetime, Meta(tz=True, extra={"unit": "time"})]


class Row(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One line of one kind within a sample.

    Fields may be added, never removed or retyped; each new one has a default.
    """
