"""Messages, what can become of them, and the interface of those who send them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum

from vmsonar_archive.system.errors import VmsonarError


@dataclass(frozen=True, slots=True)
class ForwardMessage:
    """One message; its headers identify the record, so that receivers can drop repeats."""

    topic: str
    key: str
    value: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Fate(Enum):
    """What became of one message."""

    ACKNOWLEDGED = "acknowledged"
    #: The receiver took it, but for something in it that it will never take.
    PARTLY = "partly taken"
    #: The receiver does not take this one, most likely because it is too large.
    NOT_TAKEN = "not taken"
    #: The receiver does without messages of this topic.
    UNWANTED = "unwanted"
    #: The sender is of no use any more; a new one may do better.
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one submitted message."""

    token: int
    fate: Fate
    detail: str = ""
    #: Of what was partly taken, how much was not.
    rejected: int = 0


class ReceiverRefused(VmsonarError):
    """The receiver said no, and will say so again: a wrong password, certificate, right or topic."""


class Sender(ABC):
    """Takes messages without waiting and answers for each later, in any order."""

    #: The present trouble in words; None while all is well.
    trouble: str | None = None
    retried = 0
    #: When sending has to be over, by the monotonic clock.
    end = math.inf

    @abstractmethod
    def submit(self, message: ForwardMessage, token: int) -> None:
        """Hands over one message."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Outcome]:
        """Returns the outcomes known by now; waits up to `seconds` for the first. Raises ReceiverRefused."""

    @abstractmethod
    def close(self) -> list[Outcome]:
        """Waits a moment for what is nearly done and gives up the rest."""
