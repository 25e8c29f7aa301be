"""What every way of sending can do, and how it tells what became of a message."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from vmsonar_archive.errors import VmsonarError

from vmsonar.forward.messages import Message


class Fate(Enum):
    """What became of one message."""

    ACKNOWLEDGED = "acknowledged"
    #: The receiver does not take this one, most likely because it is too large.
    NOT_TAKEN = "not taken"
    #: The sender is of no use any more; a new one may do better.
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one submitted message."""

    token: int
    fate: Fate
    detail: str = ""


class Refused(VmsonarError):
    """The receiver said no, and will say so again: a wrong password, certificate, right or topic."""


class Sender(ABC):
    """Takes messages without waiting and answers for each later, in any order."""

    def __init__(self) -> None:
        #: What goes wrong just now, in words; None while all is well.
        self.trouble: str | None = None
        self.retried = 0

    @abstractmethod
    def submit(self, message: Message, token: int) -> None:
        """Hands over one message."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Outcome]:
        """What became of messages by now; waits so long for the first. Raises Refused."""

    @abstractmethod
    def close(self) -> list[Outcome]:
        """Gives up what is under way, after a moment's wait for what is nearly done."""
