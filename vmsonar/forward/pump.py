"""From the archive to the sender and back to the cursor, which only ever follows what was acknowledged."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.lines import BadLine

from vmsonar.forward.cursor import Cursor, Mark
from vmsonar.forward.feed import Feed
from vmsonar.forward.messages import Message, Outgoing
from vmsonar.forward.sender import Fate, Outcome, Sender
from vmsonar.forward.tail import Record
from vmsonar.forward.translate import Translator
from vmsonar.forward.undeliverable import journal_undelivered
from vmsonar.forward.window import WINDOW_BYTES, Window

# What a message takes besides its value: key, headers, the protocol's own.
OVERHEAD = 1024


class Rewind(Exception):
    """Everything after the cursor has to be sent again, by a new feed and a new sender."""


class TooMuch(Rewind):
    """A batch was not taken: less at a time may be."""


@dataclass(frozen=True, slots=True)
class Target:
    """How messages are addressed, and how large they may be."""

    topics: dict[str, str]
    max_message: int


class Pump:
    """One pass over one feed with one sender; a Rewind ends it."""

    def __init__(
        self,
        feed: Feed,
        translator: Translator,
        sender: Sender,
        target: Target,
        cursor: Cursor,
        state: Path,
        log: Callable[[str], None],
        careful_until: dict[str, int] | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Up to the numbers `careful_until` one message goes at a time, to see which one is not taken."""
        self.window = Window(window_bytes)
        self.is_dry = False
        self.careful_until = dict(careful_until or {})
        #: The last record of each kind that is done with.
        self.progress: dict[str, int] = {}
        self._feed = feed
        self._records: Iterator[Record | None] = feed.records()
        self._translator = translator
        self._sender = sender
        self._target = target
        self._cursor = cursor
        self._state = state
        self._log = log

    def step(self, seconds: float) -> bool:
        """Sends what there is room for and takes in answers; True when the cursor moved."""
        self._fill()
        self._submit_queued()
        if self.window:
            for outcome in self._sender.wait(seconds):
                self._answer(outcome)
        return self._advance()

    def take_last(self, outcomes: list[Outcome]) -> bool:
        """Takes in the answers that came while closing."""
        for outcome in outcomes:
            self._answer(outcome)
        return self._advance()

    def _fill(self) -> None:
        self.is_dry = False
        while self.window.has_room and not (self.window and self._is_careful):
            record = next(self._records)
            if record is None:
                self.is_dry = True
                return
            self._take(record)
            if not self._is_careful:
                self._submit_queued()

    @property
    def _is_careful(self) -> bool:
        return any(self.progress.get(kind, 0) < until for kind, until in self.careful_until.items())

    def _submit_queued(self) -> None:
        """Hands over what is queued; when careful, one message once the one before is answered."""
        for outgoing in self.window.queued():
            while outgoing.queue:
                if self._is_careful and self.window.waiting:
                    return
                message = outgoing.queue.popleft()
                if self._is_too_large(message):
                    self._give_up(message, f"larger than max_message ({self._target.max_message} bytes)")
                else:
                    self._sender.submit(message, self.window.submitted(outgoing, message))

    def _take(self, record: Record) -> None:
        try:
            if record.passed:
                self._translator.learn(record)
                return
            value = self._translator.translate(record)
        except BadLine as error:
            self._log(f"{record.kind} {record.stamp.seq} cannot be read ({error}): it is passed over")
            value = None
        messages = [] if value is None else self._messages(record, value)
        self.window.add(
            Outgoing(
                record.kind,
                Mark.of(record.stamp),
                deque(messages),
                sum(len(message.value) for message in messages),
                record.dropped_before,
                record.unreadable_before,
            )
        )

    def _messages(self, record: Record, value: bytes) -> list[Message]:
        stamp = record.stamp
        headers = self._translator.headers(self._feed.identity.archive, stamp, self._feed.journal.head)
        topic, key = self._target.topics[record.kind], self._translator.node_at(stamp.seq)
        message = Message(topic, key, value, headers)
        return self._parts(message, self._target.max_message) if self._is_too_large(message) else [message]

    def _is_too_large(self, message: Message) -> bool:
        return len(message.value) + OVERHEAD > self._target.max_message

    def _parts(self, message: Message, limit: int) -> list[Message]:
        values = self._translator.split(message.value, limit - OVERHEAD)
        if len(values) == 1:
            return [message]
        outer = f"{message.headers['part']}." if "part" in message.headers else ""
        return [
            Message(
                message.topic,
                message.key,
                value,
                {**message.headers, "part": f"{outer}{number}/{len(values)}"},
            )
            for number, value in enumerate(values, 1)
        ]

    def _answer(self, outcome: Outcome) -> None:
        if outcome.fate is Fate.LOST:
            raise Rewind(outcome.detail)
        found = self.window.answered(outcome.token)
        if found is None:
            return
        outgoing, message = found
        if outcome.fate is Fate.ACKNOWLEDGED:
            self._cursor.counts.bytes_sent += len(message.value)
            return
        if not self._is_careful:
            # The receiver may have judged a batch of several; alone it may pass.
            outgoing.queue.appendleft(message)
            self.careful_until[outgoing.kind] = self.window.last_seq(outgoing.kind)
            raise TooMuch(outcome.detail)
        parts = self._parts(message, len(message.value) // 2 + OVERHEAD)
        if len(parts) == 1:
            self._give_up(message, outcome.detail)
        else:
            outgoing.queue.extendleft(reversed(parts))

    def _give_up(self, message: Message, reason: str) -> None:
        self._cursor.counts.undeliverable += 1
        which = f"record {message.headers['seq']}, {len(message.value)} bytes to {message.topic}"
        self._log(f"undeliverable and passed over: {which}: {reason}")
        try:
            journal_undelivered(self._state, message, reason)
        except OSError as error:
            self._log(f"cannot write to {self._state}: {error.strerror}")

    def _advance(self) -> bool:
        done = self.window.passed()
        for outgoing in done:
            counts = self._cursor.counts
            counts.sent += outgoing.size > 0
            counts.unreadable += outgoing.unreadable_before
            if outgoing.dropped_before:
                counts.lost += outgoing.dropped_before
                self._log(f"lost: retention dropped {outgoing.dropped_before} records before they were sent")
            if outgoing.mark.seq > self._feed.floor[outgoing.kind]:
                self._cursor.move(outgoing.kind, outgoing.mark)
            self.progress[outgoing.kind] = outgoing.mark.seq
        return bool(done)
