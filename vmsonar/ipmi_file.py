"""The file through which the root timer hands IPMI readings to the unprivileged daemon; docs/energy.md."""

import os
from datetime import datetime
from pathlib import Path

import msgspec

#: Below /run.
IPMI_FILE = Path("vmsonar/ipmi.json")
_MOST = 1 << 16


class IpmiReading(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One reading, or why there is none."""

    format: int = 1
    time: datetime
    #: CLOCK_BOOTTIME in nanoseconds: a reading is stale when it is older than three intervals.
    boottime: int
    #: Seconds between two readings.
    interval: float
    meter: str = "ipmi:dcmi"
    #: Watts: now, and over the meter's own sampling period.
    power: float | None = None
    power_min: float | None = None
    power_max: float | None = None
    power_average: float | None = None
    #: Whether the machine says that it measures.
    active: bool | None = None
    error: str | None = None


def read_ipmi_file(path: Path) -> IpmiReading:
    """The reading; raises OSError, or ValueError for a file that is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        content = os.read(descriptor, _MOST)
    finally:
        os.close(descriptor)
    try:
        return msgspec.json.decode(content, type=IpmiReading)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
