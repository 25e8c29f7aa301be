"""The accounts companion, `python -m vmsonar.companion.accounts`: a plain row for every process that ends.

`--listen PATH` as a unit, `--fd N` as the daemon's child. It has one capability, CAP_NET_ADMIN. Records are taken in
batches: after each it rests, longer the more the batch cost, so that a storm of ends takes a fixed share of a
processor at most. What the kernel then drops is told as lost.
"""

import errno
import os
import select
import socket
import struct
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NoReturn

from vmsonar.collectors.process.wire import Account, AccountRows, Flushed, Listening, Lost, from_recorder
from vmsonar.collectors.protocol import MAX_LINE, to_line
from vmsonar.companion.entry import start
from vmsonar.companion.listeners import heard, listen_on, sent
from vmsonar.companion.taskstats import Taskstats, possible_cpus
from vmsonar.companion.thread_groups import Moment, ThreadGroups

#: What the kernel holds for us, and what we hold for a recorder that does not read; what is more is dropped.
BUFFER = 8 * 1024 * 1024
MAX_BACKLOG = 2 * 1024 * 1024
#: The most of one processor that records may take.
SHARE = 0.1
# A portion: so few that a line is far below MAX_LINE.
_ROWS = 300
_REST_NS = 250_000_000
# How long to wait for an end: a record that comes then ended within that time, which dates it.
_PATIENCE_NS = 1_000_000_000
# Enough for all that the kernel holds: once it dropped something it takes nothing until all was received.
_BATCH_NS = 100_000_000
# A recorder that asks while we rest is answered at once, unless we owe more rest than this.
_DEBT_NS = 1_000_000_000
_BIGGEST = 8192
_MOST_RECORDERS = 8
_SLEPT_NS = 10_000_000
_MONOTONIC_COARSE = 6  # clock_getres(2): its resolution is the tick


class Bookkeeper:
    """Receives records and makes rows of them."""

    def __init__(self, taskstats: Taskstats) -> None:
        self._taskstats = taskstats
        self._buffer = bytearray(_BIGGEST)
        #: When nothing was left to receive.
        self._empty_at = time.monotonic_ns()
        self._slept = _slept()
        self._awake_since = self._empty_at if self._slept else 0
        tick = round(time.clock_getres(_MONOTONIC_COARSE) * 1e9)
        self._groups = ThreadGroups(tick, self._empty_at)

    def drain(self) -> tuple[list[Account], Lost | None, bool]:
        """One portion of the processes that ended, what was lost, and whether that is all there is."""
        self._note_sleep()
        rows: list[Account] = []
        try:
            return rows, None, self._receive(rows)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return rows, self._lose(), False

    def note_empty(self, moment: int) -> None:
        """Nothing was left to receive at that moment, CLOCK_MONOTONIC."""
        self._empty_at = moment

    def now(self) -> int:
        """CLOCK_BOOTTIME."""
        return time.monotonic_ns() + self._slept

    def _receive(self, rows: list[Account]) -> bool:
        """Reads a portion of records; True when none was left."""
        receive, read, add = self._taskstats.socket.recv_into, self._taskstats.read, self._groups.add
        buffer, after, slept, awake = self._buffer, self._empty_at, self._slept, self._awake_since
        for _ in range(_ROWS):
            asked = time.monotonic_ns()
            try:
                size = receive(buffer)
            except BlockingIOError:
                self._empty_at = asked
                return True
            ending = read(buffer, size)
            if ending is not None:
                account = add(ending, Moment(after, time.monotonic_ns(), slept, awake))
                if account is not None:
                    rows.append(account)
        return False

    def _lose(self) -> Lost:
        now = time.monotonic_ns()
        self._groups.lose(now)
        since, until = self._empty_at + self._slept, now + self._slept
        return Lost(since=since, until=until, detail="more processes ended than could be followed")

    def _note_sleep(self) -> None:
        slept = _slept()
        if abs(slept - self._slept) > _SLEPT_NS:
            self._slept, self._awake_since = slept, time.monotonic_ns()


def _slept() -> int:
    """How long the machine has slept since boot: the clocks are read one after the other, so the least counts."""
    apart = min(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(3))
    return apart if apart > _SLEPT_NS else 0


class Recorder:
    """A recorder that listens, what it has yet to be sent, and what it has asked."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.backlog = bytearray()
        self.rest = b""
        #: Since when rows were dropped because it does not read.
        self.dropped_since: int | None = None
        self.is_waiting = False

    def put(self, line: bytes, now: int) -> None:
        """Adds a line to what is to be sent, as long as there is room."""
        if len(self.backlog) + len(line) > MAX_BACKLOG:
            self.dropped_since = self.dropped_since or now
            return
        if self.dropped_since is not None:
            detail = "the recorder did not read what it was sent"
            self.backlog += to_line(Lost(since=self.dropped_since, until=now, detail=detail))
            self.dropped_since = None
        self.backlog += line

    def send(self) -> bool:
        """Sends what fits; False when it is gone."""
        is_there = sent(self.connection, self.backlog)
        self.is_waiting = self.is_waiting and bool(self.backlog)
        return is_there

    def questions(self) -> list[int] | None:
        """The numbers of the flushes that it asks for; None when it is gone, or talks nonsense without end."""
        said = heard(self.connection)
        if said is None or len(self.rest) > MAX_LINE:
            return None
        *lines, self.rest = (self.rest + said).split(b"\n")
        return [asked.number for line in lines if (asked := from_recorder(line)) is not None]


class Service:
    """The companion's loop: records in, rows out to every recorder; a few rows are kept while there is none."""

    def __init__(self, taskstats: Taskstats, share: float) -> None:
        self._taskstats = taskstats
        self._keeper = Bookkeeper(taskstats)
        self._share = share
        self._server: socket.socket | None = None
        self._recorders: dict[socket.socket, Recorder] = {}
        self._rest_until = 0
        #: What a recorder that comes will be told first, and since when that is everything.
        self._kept = bytearray()
        self._kept_since = self._keeper.now()

    def listen(self, server: socket.socket) -> None:
        server.setblocking(False)
        self._server = server

    def add(self, connection: socket.socket) -> None:
        """Adds a recorder and tells it what is kept."""
        recorder = self._recorders[connection] = Recorder(connection)
        recorder.backlog += to_line(Listening(since=self._kept_since)) + self._kept
        self._keep_nothing()
        self._send(recorder)

    def run(self) -> None:
        """Runs until a signal, or until the last recorder is gone where nobody else can come."""
        while self._server is not None or self._recorders:
            now = time.monotonic_ns()
            left = self._rest_until - now
            doors: list[socket.socket] = [*self._recorders, *([self._server] if self._server else [])]
            if left <= 0:
                doors.append(self._taskstats.socket)
            stuck = [recorder.connection for recorder in self._recorders.values() if recorder.is_waiting]
            wait = left if left > 0 else _PATIENCE_NS
            ready, writable, _ = select.select(doors, stuck, [], wait / 1e9)
            if left <= 0 and self._taskstats.socket not in ready:
                self._keeper.note_empty(now)
            for door in ready:
                self._open(door)
            for connection in writable:
                if connection in self._recorders:
                    self._send(self._recorders[connection])

    def _open(self, door: socket.socket) -> None:
        if door is self._taskstats.socket:
            self._take()
        elif door is self._server:
            self._accept(door)
        else:
            self._answer(self._recorders[door])

    def _accept(self, server: socket.socket) -> None:
        connection, _ = server.accept()
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", packed)
        if user not in (0, os.geteuid()) or len(self._recorders) >= _MOST_RECORDERS:
            connection.close()
        else:
            self.add(connection)

    def _answer(self, recorder: Recorder) -> None:
        questions = recorder.questions()
        if questions is None:
            self._drop(recorder)
            return
        for number in questions:
            owed = self._rest_until - time.monotonic_ns()
            is_behind = owed > _DEBT_NS or not self._take()
            recorder.put(to_line(Flushed(number=number, is_behind=is_behind)), self._keeper.now())
            recorder.is_waiting = True
        self._send(recorder)

    def _take(self) -> bool:
        """Tells everybody what ended; False when some of it is still to come."""
        begin, used, is_empty = time.thread_time_ns(), 0, False
        while not is_empty and used < _BATCH_NS:
            rows, lost, is_empty = self._keeper.drain()
            if rows:
                self._tell(to_line(AccountRows(rows=rows)))
            if lost is not None:
                self._tell(to_line(lost))
            for recorder in list(self._recorders.values()):
                self._send(recorder)
            used = time.thread_time_ns() - begin
        now = time.monotonic_ns()
        owed = max(self._rest_until, now) + round(used / self._share)
        self._rest_until = max(owed, now + _REST_NS)
        return is_empty

    def _tell(self, line: bytes) -> None:
        for recorder in self._recorders.values():
            recorder.put(line, self._keeper.now())
        if not self._recorders:
            self._kept += line
        if len(self._kept) > MAX_BACKLOG // 4:
            self._keep_nothing()

    def _keep_nothing(self) -> None:
        self._kept.clear()
        self._kept_since = self._keeper.now()

    def _send(self, recorder: Recorder) -> None:
        if not recorder.send():
            self._drop(recorder)

    def _drop(self, recorder: Recorder) -> None:
        self._recorders.pop(recorder.connection, None)
        recorder.connection.close()
        if not self._recorders:
            self._keep_nothing()


def _run(options: Namespace) -> int:
    service = Service(Taskstats(possible_cpus(), options.buffer), options.share)
    if options.fd is not None:
        service.add(socket.socket(fileno=options.fd))
    else:
        service.listen(listen_on(options.listen))
    try:
        service.run()
    finally:
        if options.listen is not None:
            Path(options.listen).unlink(missing_ok=True)
    return 0


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--share", type=float, default=SHARE, help="most of one processor that it may take")
    parser.add_argument("--buffer", type=int, default=BUFFER, help="bytes that the kernel may hold for it")


def main() -> NoReturn:
    """Tells of ends until told to stop, or until the daemon that started it is gone."""
    start(
        "vmsonar.companion.accounts", "Tells vmsonar what every process used that ends.", _add_options, _run
    )


if __name__ == "__main__":
    main()
