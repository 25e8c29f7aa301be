"""What is under way: bounded in number and bytes, acknowledged in any order, passed in order."""

from collections import deque

from vmsonar.forward.messages import Message, Outgoing

# So little keeps the process under 60 MB whatever the backlog, and is more than a round trip needs.
WINDOW_BYTES = 2**20


class Window:
    """Records from the first that is not acknowledged to the last that was handed to the sender."""

    def __init__(self, max_bytes: int = WINDOW_BYTES, max_records: int = 500) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: deque[Outgoing] = deque()
        self._by_token: dict[int, tuple[Outgoing, Message]] = {}
        self._bytes = 0
        self._token = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def has_room(self) -> bool:
        """One record always fits."""
        return len(self._records) < self._max_records and self._bytes < self._max_bytes

    def add(self, record: Outgoing) -> None:
        self._records.append(record)
        self._bytes += record.size

    def queued(self) -> list[Outgoing]:
        """The records that have messages to hand over; they are the last ones."""
        found: list[Outgoing] = []
        for record in reversed(self._records):
            if not record.queue:
                break
            found.append(record)
        return found[::-1]

    @property
    def waiting(self) -> int:
        """Messages that are not answered for."""
        return len(self._by_token)

    def last_seq(self, kind: str) -> int:
        """The last record of a kind that is under way; 0 when there is none."""
        return max((record.mark.seq for record in self._records if record.kind == kind), default=0)

    def submitted(self, record: Outgoing, message: Message) -> int:
        """Notes that a message is on its way; returns the token to recognise its answer by."""
        self._token += 1
        self._by_token[self._token] = (record, message)
        record.waiting += 1
        return self._token

    def answered(self, token: int) -> tuple[Outgoing, Message] | None:
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
