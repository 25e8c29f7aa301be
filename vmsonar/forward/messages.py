"""Messages on their way, the interface of senders, and the journal of what could not be delivered."""

import os
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.forward.cursor import Mark


@dataclass(frozen=True, slots=True)
class ForwardMessage:
    """One message; its headers identify the record, so that receivers can drop repeats."""

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
    queue: deque[ForwardMessage]
    size: int
    dropped_before: int = 0
    unreadable_before: int = 0
    #: Everything up to this number came before it.
    up_to: int = 0
    #: False when it was acknowledged before, and is sent again because somebody asked for it.
    is_new: bool = True
    #: Messages that the sender has not answered for.
    waiting: int = 0
    acknowledged: int = 0
    #: Messages that were not taken, and why, as long as it is open whether the receiver takes any.
    refused: list[tuple[ForwardMessage, str]] = field(default_factory=list)
    given_up: int = 0

    @property
    def is_done(self) -> bool:
        return not self.queue and not self.waiting and not self.refused

    @property
    def is_sent(self) -> bool:
        """Whether the receiver has all of it."""
        return self.acknowledged > 0 and not self.given_up


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
        #: The present trouble in words; None while all is well.
        self.trouble: str | None = None
        self.retried = 0
        #: When sending has to be over, by the monotonic clock.
        self.end: float | None = None

    @abstractmethod
    def submit(self, message: ForwardMessage, token: int) -> None:
        """Hands over one message."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Outcome]:
        """Returns the outcomes known by now; waits up to `seconds` for the first. Raises Refused."""

    @abstractmethod
    def close(self) -> list[Outcome]:
        """Waits a moment for what is nearly done and gives up the rest."""


UNDELIVERABLE_FILE = "undeliverable.jsonl"


class Undelivered(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One message that was given up; the record itself stays in the archive."""

    time: datetime
    topic: str
    archive: str
    run: str
    boot: str
    seq: int
    part: str | None = None
    bytes: int
    reason: str


def journal_undelivered(state: Path, message: ForwardMessage, reason: str) -> Undelivered:
    """Appends a line; raises OSError on a full disk, which must not stop the caller."""
    headers = message.headers
    entry = Undelivered(
        time=datetime.now(UTC),
        topic=message.topic,
        archive=headers["archive"],
        run=headers["run"],
        boot=headers["boot"],
        seq=int(headers["seq"]),
        part=headers.get("part"),
        bytes=len(message.value),
        reason=reason,
    )
    descriptor = files.open_own(state / UNDELIVERABLE_FILE, os.O_WRONLY | os.O_APPEND)
    try:
        files.write_all(descriptor, msgspec.json.encode(entry) + b"\n")
    finally:
        os.close(descriptor)
    return entry
