"""What a collector makes of a machine at one tick."""

from datetime import UTC, datetime

import msgspec
from vmsonar_archive.records import KINDS

from vmsonar.collectors.base import Setup, Tick
from vmsonar.config.schema import Config


def tick(boottime=1):
    return Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=boottime, boot="b", fresh=True)


def rows_of(make, host, at=None):
    collector = make(Setup(Config(), host))
    encoded = collector.collect(at or tick()).by_kind
    collector.close()
    return decoded(encoded)


def decoded(by_kind):
    """Encoded rows as Structs, by kind."""
    return {
        kind: [msgspec.json.decode(row, type=KINDS[kind]) for row in rows] for kind, rows in by_kind.items()
    }
