"""Who has series where there are many, what meters have summed, and how both go on after a restart."""

from collections.abc import Collection

import msgspec

from vmsonar_archive.records import EnergyRow

#: How many subjects of a kind have series at a time, unless told otherwise.
PLACES = 100
#: A place changes hands at most this often: so many seconds.
TENURE = 600
#: A meter's counter may have gone round unseen at this power: the rule of the view energy_rates.
_MOST_WATTS = 500

#: What tells subjects of a kind apart.
Key = tuple[str | int, ...]
Seats = tuple[tuple[Key, int], ...]


class Carried(msgspec.Struct, frozen=True):
    """What the metrics of the next sample depend on beside the records themselves: so they come out the same again."""

    boot: str = ""
    booted: int = 0
    #: Each meter's last reading, when that was (0 where there is none since the boot), and the sum.
    meters: dict[str, tuple[int, int, int]] = {}
    #: Kind and key of those whose counters fell, and when they began anew.
    starts: list[tuple[str, Key, int]] = []
    #: By kind, who has a place, and since when.
    seats: dict[str, Seats] = {}


class Places:
    """Who is shown of many: as many as there are places, the busiest; a place changes hands at most every ten minutes.

    So however many come and go, no more than 7 times as many as there are places are shown in an hour.
    """

    def __init__(self, number: int = PLACES) -> None:
        self._number = number
        #: Who has a place, and since when (CLOCK_BOOTTIME).
        self._holders: dict[Key, int] = {}
        #: The same to carry; another tuple where it changed.
        self.seats: Seats = ()
        #: The last total of each, and how it rose lately.
        self._risen: dict[Key, tuple[float, float]] = {}

    def begin(self, seats: Seats = ()) -> None:
        """Forgets what was; goes on with those who had places."""
        self.seats = seats[: self._number]
        self._holders, self._risen = dict(self.seats), {}

    def choose(self, totals: dict[Key, float], now: int, *, may_change: bool = True) -> Collection[Key]:
        """Those of the present ones that are shown."""
        before, self._risen = self._risen, {}
        for key, total in totals.items():
            last, lately = before.get(key, (0.0 if may_change else total, 0.0))
            self._risen[key] = (total, lately / 2 + max(0.0, total - last))
        waiting = sorted(totals.keys() - self._holders.keys(), key=self._lately, reverse=True)
        if waiting and may_change:
            self._seat(waiting, now)
            self.seats = tuple(self._holders.items())
        return self._holders.keys() & totals.keys()

    def _lately(self, key: Key) -> float:
        """How much its total rose in the last samples; those that are gone come last."""
        return self._risen[key][1] if key in self._risen else -1.0

    def _seat(self, waiting: list[Key], now: int) -> None:
        free = self._number - len(self._holders)
        over = [key for key, since in self._holders.items() if not 0 <= now - since < TENURE * 1_000_000_000]
        for holder, key in zip(sorted(over, key=self._lately), waiting[free:], strict=False):
            if self._lately(key) <= self._lately(holder):
                break
            del self._holders[holder]
            self._holders[key] = now
        self._holders.update(dict.fromkeys(waiting[:free], now))


class Meters:
    """Energy counters without their wraps: what was measured since we began to read, in microjoules."""

    def __init__(self, carried: dict[str, tuple[int, int, int]]) -> None:
        self._last = {meter: (energy, at) for meter, (energy, at, _) in carried.items() if at}
        self._sums = {meter: total for meter, (_, _, total) in carried.items()}

    def carried(self) -> dict[str, tuple[int, int, int]]:
        return {meter: (*self._last.get(meter, (0, 0)), total) for meter, total in self._sums.items()}

    def unwrapped(self, row: EnergyRow, boottime: int) -> EnergyRow:
        """The row with the sum in place of the counter."""
        if row.energy is None:
            return row
        before, at = self._last.get(row.meter, (row.energy, boottime))
        if boottime < at:  # told again from earlier on
            return msgspec.structs.replace(row, energy=self._sums[row.meter])
        self._last[row.meter] = (row.energy, boottime)
        step, span = row.energy - before, row.energy_range or 0
        if span and (boottime - at) / 1e9 * _MOST_WATTS > span / 1e6:
            step = 0
        elif step < 0:
            step = max(0, step + span)
        total = self._sums[row.meter] = self._sums.get(row.meter, 0) + step
        return msgspec.structs.replace(row, energy=total)

    def begin_boot(self) -> None:
        """Forgets the readings: those of another boot cannot be compared with them."""
        self._last.clear()
