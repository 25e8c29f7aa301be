"""Moves records from the archive to the sender, and the cursor after what was acknowledged, in order."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from vmsonar_archive.dialect.places import Carried
from vmsonar_archive.format.lines import BadLine
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.forward.feed import Feed
from vmsonar.forward.messages import Fate, ForwardMessage, Outcome, ReceiverRefused, Sender
from vmsonar.forward.state import Cursor, Mark, journal_undelivered
from vmsonar.forward.tail import Record
from vmsonar.forward.translate import Translator

# This little keeps the process under 60 MB whatever the backlog, and is more than a round trip needs.
WINDOW_BYTES = 2**20
_WINDOW_RECORDS = 500
# What a message takes besides its value: key, headers, the protocol's own.
OVERHEAD = 1024
# After this many refused records in a row, the receiver is asked whether it takes any.
_DOUBTED = 20


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
    carried: Carried | None = None
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


class Window:
    """Records from the first that is not acknowledged to the last that was handed to the sender."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._records: deque[Outgoing] = deque()
        self._by_token: dict[int, tuple[Outgoing, ForwardMessage]] = {}
        self._bytes = 0
        self._token = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def has_room(self) -> bool:
        """One record always fits."""
        return len(self._records) < _WINDOW_RECORDS and self._bytes < self._max_bytes

    def add(self, record: Outgoing) -> None:
        self._records.append(record)
        self._bytes += record.size

    def queued(self) -> list[Outgoing]:
        """The records that have messages to hand over; they are the last ones."""
        return list(takewhile(lambda record: record.queue, reversed(self._records)))[::-1]

    @property
    def waiting(self) -> int:
        """Messages that are not answered for."""
        return len(self._by_token)

    @property
    def is_busy(self) -> bool:
        """Whether messages are still to be handed over or to be answered for."""
        return bool(self._by_token) or bool(self._records and self._records[-1].queue)

    def set_aside(self, record: Outgoing) -> None:
        """Takes no more room for a record that waits for the answer to others."""
        self._bytes -= record.size
        record.size = 0

    def last_seq(self, kind: str) -> int:
        """The last record of a kind that is under way; 0 when there is none."""
        return max((record.mark.seq for record in self._records if record.kind == kind), default=0)

    def submitted(self, record: Outgoing, message: ForwardMessage) -> int:
        """Notes that a message is on its way; returns the token to recognise its answer by."""
        self._token += 1
        self._by_token[self._token] = (record, message)
        record.waiting += 1
        return self._token

    def answered(self, token: int) -> tuple[Outgoing, ForwardMessage] | None:
        """The message behind an answer; None for one that nobody waits for."""
        found = self._by_token.pop(token, None)
        if found is not None:
            found[0].waiting -= 1
        return found

    def passed(self) -> list[Outgoing]:
        """Takes out the records at the beginning that are done."""
        done = []
        while self._records and self._records[0].is_done:
            record = self._records.popleft()
            self._bytes -= record.size
            done.append(record)
        return done


class Rewind(Exception):
    """Everything after the cursor has to be sent again, by a new feed and a new sender."""


class TooMuch(Rewind):
    """A batch was not taken: less at a time may be."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topic of each kind of record, and how large a message may be."""

    by_kind: dict[str, str]
    max_message: int


@dataclass(slots=True)
class Caution:
    """What refusals have taught, for as long as the process lives."""

    #: Up to these numbers one message goes at a time, to see which one is not taken.
    until: dict[str, int] = field(default_factory=dict)
    window_bytes: int = WINDOW_BYTES
    #: The smallest message of each topic that was taken: sent again, it tells whether the receiver takes any.
    taken: dict[str, ForwardMessage] = field(default_factory=dict)
    #: What the receiver remarked last on each topic: it is logged once.
    remarks: dict[str, str] = field(default_factory=dict)


@dataclass
class Pump:
    """One pass over one feed with one sender; a Rewind ends it."""

    feed: Feed
    translator: Translator
    sender: Sender
    topics: Topics
    cursor: Cursor
    state: Path
    log: Callable[[str], None]
    caution: Caution
    is_dry: bool = False
    #: The last record of each kind that is done with.
    progress: dict[str, int] = field(default_factory=dict)
    #: Records of each topic that were refused since one was taken.
    _doubted: dict[str, list[Outgoing]] = field(default_factory=dict)
    _probe: Outgoing | None = None

    def __post_init__(self) -> None:
        self.window = Window(self.caution.window_bytes)
        self._records = self.feed.records()

    @property
    def is_done(self) -> bool:
        """Whether everything that is written has been acknowledged or given up."""
        return self.is_dry and not self.window

    def step(self, seconds: float) -> bool:
        """Sends what there is room for and takes in answers; True when the cursor moved."""
        self._fill()
        self._submit_queued()
        if self.window.waiting:
            for outcome in self.sender.wait(seconds):
                self._answer(outcome)
        elif self._doubted:
            self._ask_again()
        return self._advance()

    def close(self) -> None:
        """Counts what is acknowledged by now and drops the rest."""
        with suppress(Rewind, ReceiverRefused):
            for outcome in self.sender.close():
                self._answer(outcome)
            self._advance()

    def _fill(self) -> None:
        self.is_dry = False
        while self.window.has_room and not (self._is_careful and self.window.is_busy):
            if any(len(records) >= _DOUBTED for records in self._doubted.values()):
                return
            record = next(self._records)
            if record is None:
                self.is_dry = True
                return
            self._take(record)
            if not self._is_careful:
                self._submit_queued()

    @property
    def _is_careful(self) -> bool:
        return any(self.progress.get(kind, 0) < until for kind, until in self.caution.until.items())

    def _submit_queued(self) -> None:
        """Hands over what is queued; when careful, one message once the one before is answered."""
        for outgoing in self.window.queued():
            while outgoing.queue:
                if self._is_careful and self.window.waiting:
                    return
                message = outgoing.queue.popleft()
                if self._is_too_large(message):
                    reason = f"larger than max_message ({self.topics.max_message} bytes)"
                    self._doubt(outgoing, message, reason)
                else:
                    self.sender.submit(message, self.window.submitted(outgoing, message))

    def _take(self, record: Record) -> None:
        unreadable = record.unreadable_before
        try:
            if record.passed:
                self.translator.learn(record)
                return
            value = self.translator.translate(record)
        except BadLine as error:
            self.log(f"{record.kind} {record.stamp.seq} cannot be read ({error}): it is passed over")
            value = None
            unreadable += 1
        messages = [] if value is None else self._messages(record, record.kind, value)
        for kind, more in () if value is None else self.translator.more():
            messages += self._messages(record, kind, more)
        self.window.add(
            Outgoing(
                record.kind,
                Mark.of(record.stamp),
                deque(messages),
                sum(len(message.value) for message in messages),
                record.dropped_before,
                unreadable,
                record.up_to,
                not self.cursor.has(record.kind, record.stamp),
                self.translator.carried,
            )
        )

    def _messages(self, record: Record, kind: str, value: bytes) -> list[ForwardMessage]:
        stamp = record.stamp
        headers = self.translator.headers(self.feed.identity, stamp, self.feed.journal.ledger.head)
        topic, key = self.topics.by_kind[kind], self.translator.node_at(stamp.seq)
        message = ForwardMessage(topic, key, value, headers)
        return self._parts(message, self.topics.max_message) if self._is_too_large(message) else [message]

    def _is_too_large(self, message: ForwardMessage) -> bool:
        return len(message.value) + OVERHEAD > self.topics.max_message

    def _parts(self, message: ForwardMessage, limit: int) -> list[ForwardMessage]:
        values = self.translator.split(message.value, limit - OVERHEAD)
        if len(values) == 1:
            return [message]
        outer = f"{message.headers['part']}." if "part" in message.headers else ""
        return [
            replace(
                message, value=value, headers={**message.headers, "part": f"{outer}{number}/{len(values)}"}
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
        if outcome.fate is Fate.UNWANTED:
            self.cursor.counts.unwanted += 1
            self._remark(message.topic, f"{outcome.detail}: it gets no {message.topic}")
            self._pass_doubted(message.topic)
            return
        if outcome.fate is Fate.PARTLY:
            self._give_up(message, outcome.detail, outcome.rejected)
        elif outcome.fate is Fate.ACKNOWLEDGED and outcome.detail:
            self._remark(message.topic, f"the receiver warns: {outcome.detail}")
        if outcome.fate in (Fate.ACKNOWLEDGED, Fate.PARTLY):
            outgoing.acknowledged += 1
            self.cursor.counts.bytes_sent += len(message.value)
            self._trust(message)
            return
        if outgoing is self._probe:
            raise self._refused_all(message.topic)
        if not self._is_careful:
            # The receiver may have judged a batch of several; alone it may pass.
            outgoing.queue.appendleft(message)
            self.caution.until[outgoing.kind] = self.window.last_seq(outgoing.kind)
            raise TooMuch(outcome.detail)
        parts = self._parts(message, len(message.value) // 2 + OVERHEAD)
        if len(parts) == 1:
            self._doubt(outgoing, message, outcome.detail)
        else:
            outgoing.queue.extendleft(reversed(parts))

    def _doubt(self, outgoing: Outgoing, message: ForwardMessage, reason: str) -> None:
        """Holds a refused record, and with it the cursor, until it is known who is at fault."""
        if not outgoing.refused:
            self._doubted.setdefault(message.topic, []).append(outgoing)
            self.window.set_aside(outgoing)
        outgoing.refused.append((message, reason))

    def _trust(self, message: ForwardMessage) -> None:
        """The receiver takes messages of this topic: those that it refused before are at fault themselves."""
        smallest = self.caution.taken.setdefault(message.topic, message)
        if len(message.value) < len(smallest.value):
            self.caution.taken[message.topic] = message
        self._pass_doubted(message.topic)

    def _pass_doubted(self, topic: str) -> None:
        for outgoing in self._doubted.pop(topic, ()):
            for refused, reason in outgoing.refused:
                self._give_up(refused, reason)
            outgoing.given_up += len(outgoing.refused)
            outgoing.refused.clear()

    def _ask_again(self) -> None:
        """Sends what was taken before once more: only a receiver that still takes it may have others passed over."""
        topic = max(self._doubted, key=lambda topic: len(self._doubted[topic]))
        taken = self.caution.taken.get(topic)
        if taken is None:
            raise self._refused_all(topic)
        self._probe = Outgoing("probe", Mark(), deque(), 0)
        self.sender.submit(taken, self.window.submitted(self._probe, taken))

    def _refused_all(self, topic: str) -> ReceiverRefused:
        doubted = self._doubted[topic]
        smallest = min(len(message.value) for one in doubted for message, _ in one.refused)
        reason = doubted[-1].refused[-1][1]
        return ReceiverRefused(
            f"{reason}: so it is with all of the last {len(doubted)} records for {topic}, down to {smallest} bytes; "
            "nothing is passed over: check the receiver's limits, forward.url and the credentials"
        )

    def _remark(self, topic: str, words: str) -> None:
        if self.caution.remarks.get(topic) != words:
            self.caution.remarks[topic] = words
            self.log(words)

    def _give_up(self, message: ForwardMessage, reason: str, count: int = 1) -> None:
        self.cursor.counts.undeliverable += count
        which = f"record {message.headers['seq']}, {len(message.value)} bytes to {message.topic}"
        self.log(f"undeliverable and passed over: {which}: {reason}")
        try:
            journal_undelivered(self.state, message, reason)
        except (OSError, VmsonarError) as error:
            self.log(f"cannot write to {self.state}: {error}")

    def _advance(self) -> bool:
        done = self.window.passed()
        for outgoing in done:
            counts = self.cursor.counts
            counts.sent += outgoing.is_sent
            counts.unreadable += outgoing.unreadable_before
            if outgoing.dropped_before:
                counts.lost += outgoing.dropped_before
                self.log(f"lost: retention dropped {outgoing.dropped_before} records before they were sent")
            if outgoing.is_new:
                self.cursor.move(outgoing.kind, outgoing.mark, outgoing.up_to)
                self.cursor.carried = outgoing.carried
            self.progress[outgoing.kind] = outgoing.mark.seq
        return bool(done)
