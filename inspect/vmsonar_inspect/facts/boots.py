"""How each boot of a machine ended, by the last that was recorded of it."""

from operator import itemgetter

from vmsonar_archive.read.endings import Told, boot_tails, machine_end
from vmsonar_archive.records import EventRow

from vmsonar_inspect.facts.model import MachineEnd
from vmsonar_inspect.facts.queries import Queries, Record, grouped

_TELLING = ("daemon_start", "daemon_stop", "teardown_notice")

# The last two samples of a boot show whether a daemon recorded it: single samples are runs of their own.
_LAST = """
    SELECT archive, boot, run, seq, boottime, time FROM samples
    QUALIFY ROW_NUMBER() OVER (PARTITION BY archive, boot ORDER BY seq DESC) <= 2"""


def query_machine_ends(queries: Queries, events: list[Record]) -> dict[str, list[MachineEnd]]:
    """The ends of each archive's boots in order; the last may just be where the record stops."""
    told: dict[tuple[str, int], Told] = {}
    telling = [row for row in events if row["event_type"] in _TELLING]
    for row in [*queries.rows(_LAST), *telling]:
        place = (row["archive"], row["seq"])
        stamp = {name: row[name] for name in ("time", "seq", "run", "boot", "boottime")}
        record = told.setdefault(place, Told(**stamp))
        if "event_type" in row:
            wanted = {name: row[name] for name in ("event_type", "happened", "reason")}
            record.event.append(EventRow(**wanted))
    ordered = sorted(told.items(), key=itemgetter(0))
    return {
        archive: _ends([record for _, record in own])
        for archive, own in grouped(ordered, lambda each: each[0][0]).items()
    }


def _ends(records: list[Told]) -> list[MachineEnd]:
    tails = boot_tails(records)
    found = []
    for place, tail in enumerate(tails, start=1):
        end = machine_end(tail, followed=place < len(tails))
        found.append(MachineEnd(boot=tail.boot, time=end.time, how=str(end.how), evidence=end.evidence))
    return found
