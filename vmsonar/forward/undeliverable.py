"""A journal of what could not be delivered: which record, which part, how large, why."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from vmsonar.forward.messages import Message

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


def journal_undelivered(state: Path, message: Message, reason: str) -> Undelivered:
    """Adds a line; a full disk must not stop what follows, so the caller counts in any case."""
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
    with (state / UNDELIVERABLE_FILE).open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")
    return entry
