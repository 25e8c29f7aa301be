"""The clocks of clock_gettime(2) that recording needs, in one object that tests can replace."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """The real clocks."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, as set by whoever sets the clock."""
        return time.time_ns()

    def boottime_ns(self) -> int:
        """Nanoseconds since boot, suspend included; never steps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def monotonic_ns(self) -> int:
        """Nanoseconds since boot, suspend left out; never steps."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def now(self) -> datetime:
        """Wall time in UTC, in microseconds."""
        return _EPOCH + timedelta(microseconds=self.wall_ns() // 1000)
