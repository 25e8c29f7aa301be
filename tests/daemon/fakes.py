"""Collectors that misbehave, and clocks that do as they are told."""

import os
import threading

from vmsonar_archive.records import Capability, EventRow, NodeRow

from tests.real.wait import let_pass
from vmsonar.collectors.base import Collector, Rows, Tick
from vmsonar.host.clock import Clock


class FakeClock(Clock):
    def __init__(self, wall=10**18, boot=10**12, mono=10**12):
        self.wall, self.boot, self.mono = wall, boot, mono

    def wall_ns(self):
        return self.wall

    def boottime_ns(self):
        return self.boot

    def monotonic_ns(self):
        return self.mono

    def move(self, nanoseconds, wall=0, asleep=0):
        self.wall += nanoseconds + wall + asleep
        self.boot += nanoseconds + asleep
        self.mono += nanoseconds


class Fake(Collector):
    name = "fake"
    kinds = ("node",)

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        rows.add("node", NodeRow(load1=1.0))
        return rows

    def capabilities(self):
        return [
            Capability(collector=self.name, item="all", available=False, reason="a fake", remedy="be real"),
            Capability(collector=self.name, item="a yeti", available=False, reason="there is none"),
        ]


class Raises(Fake):
    name = "raises"
    broken = True

    def collect(self, tick):
        if self.broken:
            raise ValueError("cannot count\nto three")
        return super().collect(tick)


class Hangs(Fake):
    """Hangs for so many seconds at its first collection, and has an event to tell when it is back."""

    name = "hangs"
    time_limit = 0.2
    seconds = 60.0

    def __init__(self):
        self.calls = 0
        self.released = threading.Event()

    def collect(self, tick):
        self.calls += 1
        if self.calls == 1:
            self.released.wait(self.seconds)
        rows = super().collect(tick)
        if self.calls == 1:
            rows.add("event", EventRow(event_type="container_start", detail="while it hung"))
        return rows


class Slow(Fake):
    """Takes a second for every sample, right in the loop; leaves a byte in the file SLOW_MARK when it begins one."""

    name = "slow"

    def collect(self, tick):
        if mark := os.environ.get("SLOW_MARK"):
            with open(mark, "a") as file:
                file.write("x")
        let_pass(1)
        return super().collect(tick)


class Mute(Fake):
    """Collects, but fails when it is asked what it can see."""

    name = "mute"

    def __init__(self, _setup):
        super().__init__()

    def capabilities(self):
        raise RuntimeError("not today")

    def describe(self):
        raise RuntimeError("not today")
