"""What is sent: one message per record, or several where one would be too large."""

from collections import deque
from dataclasses import dataclass, field

from vmsonar.forward.cursor import Mark


@dataclass(frozen=True, slots=True)
class Message:
    """One message; its headers tell which record it is, so that a repeat is known as one."""

    topic: str
    key: str
    value: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Outgoing:
    """One record on its way: done when all its messages are acknowledged or given up."""

    kind: str
    mark: Mark
    #: Messages that are still to be handed to the sender.
    queue: deque[Message]
    size: int
    dropped_before: int = 0
    unreadable_before: int = 0
    #: Messages that the sender has not answered for.
    waiting: int = 0

    @property
    def is_done(self) -> bool:
        return not self.queue and not self.waiting
