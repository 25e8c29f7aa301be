"""The time frame that a person asks for."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Frame:
    """From since (inclusive) to until (exclusive)."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_whole(self) -> bool:
        return self.since is None and self.until is None
