"""The units that the fields of the model have, and what many parts of an answer are made of: a use, an energy."""

from typing import Annotated

import msgspec
from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import titled, unit

TEXT = unit("text")
CHOICE = unit("choice")
ARCHIVE = unit("archive id")
CONTAINER = unit("container id")
NUMBER = unit("number")
TIME = unit("time")
COUNT = unit("count")
RATIO = unit("ratio")
SHARE = unit("share")
PERCENT = unit("percent")
CORES = unit("cores")
SECONDS = unit("seconds")
LATENCY = unit("seconds each")
ELAPSED = unit("elapsed seconds")
BUSY = unit("busy seconds")
CORE_HOURS = unit("core hours")
BYTES = unit("bytes")
GIB = unit("GiB")
BYTE_SECONDS = unit("byte seconds")
RATE = unit("bytes per second")
JOULES = unit("joules")
KWH = unit("kWh")
ENERGY = unit("energy")
GRAMS = unit("grams")
GRAMS_PER_KWH = unit("grams per kWh")
WATTS = unit("watts")
CELSIUS = unit("degrees celsius")

#: Version of the answers of --json and --csv; fields may be added, never removed or retyped.
ANSWER = 1


class AnswerPart(msgspec.Struct, kw_only=True):
    """A part of an answer: every field is always written, null where nothing is known."""


class Use(msgspec.Struct, kw_only=True, frozen=True):
    """How much of something was used over time; the mean is weighted by time."""

    mean: Annotated[float | None, titled(""), about("weighted by time")] = None
    median: Annotated[float | None, titled("median")] = None
    p95: Annotated[float | None, titled("p95"), about("95th percentile")] = None
    peak: Annotated[float | None, titled("peak")] = None


NOTHING = Use()


class Energy(msgspec.Struct, kw_only=True, frozen=True):
    """Energy of something, with how it was found."""

    joules: Annotated[float | None, JOULES] = None
    kwh: Annotated[float | None, KWH] = None
    source: str | None = None
    method: str | None = None
    grams_co2e: Annotated[float | None, GRAMS, titled("CO2e")] = None
