"""The helper process that asks what may hang, and the recorder's end of the line to it.

Run as `python -m vmsonar.collectors.filesystem.helper FD`. Comes in: a path per line, in hexadecimal, since it may hold
any byte. Goes out: the path again and the figures of statvfs(3), or `!` and the number of the error. Each question has
a thread of its own, so that one that never returns holds up no other. It ends when its other end is closed.
"""

import errno
import os
import select
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the helper itself does without all these, and stays small
    import subprocess

    from vmsonar.host.clock import Backoff, Clock

#: Questions under way at one time; those who hang stay so until their file system answers or is gone.
MOST = 24
_SIZE = 1 << 16
# The longest line is a path of 4,096 bytes in hexadecimal.
_MOST_REST = 1 << 14
# Seconds for a killed helper to be gone.
_FAREWELL = 0.2

#: Size of a block, blocks: all, free, available; inodes: all, free, available; or the number of an error.
Answer = tuple[int, int, int, int, int, int, int] | int


def ask(path: bytes) -> Answer:
    """The figures of a file system, in the order of a line's."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return error.errno or errno.EIO
    return found[1], found[2], found[3], found[4], found[5], found[6], found[7]


class Helper:
    """Starts the helper when it is first needed, and again when it has gone; never waits for it longer than told."""

    def __init__(self, clock: "Clock", backoff: "Backoff") -> None:
        self._clock = clock
        self._backoff = backoff
        self._not_before = 0
        self._line: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        #: The last answer of each path.
        self.answers: dict[bytes, Answer] = {}
        #: Paths whose answer is awaited, and since when.
        self.waiting: dict[bytes, int] = {}
        self.trouble: str | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def ask(self, paths: Iterable[bytes], now: int) -> None:
        """Asks for those that are not awaited already; `now` is in nanoseconds."""
        if self._line is None and now >= self._not_before:
            self._not_before = now + round(self._backoff.next() * 1e9)
            self._start()
        new = [path for path in paths if path not in self.waiting]
        if self._line is None or not new:
            return
        try:
            self._line.sendall(b"".join(path.hex().encode() + b"\n" for path in new))
        except OSError as error:  # BlockingIOError too: it has stopped listening
            self._lose(f"the helper does not listen: {error.strerror}")
        else:
            self.waiting.update(dict.fromkeys(new, now))

    def listen(self, seconds: float, wanted: Iterable[bytes] = ()) -> None:
        """Takes the answers that are there, and waits up to that long for the wanted ones."""
        until = self._clock.monotonic_ns() + seconds * 1e9
        while self._line is not None:
            is_awaited = any(path in self.waiting for path in wanted)
            left = (until - self._clock.monotonic_ns()) / 1e9 if is_awaited else 0.0
            if not select.select([self._line], [], [], max(0.0, left))[0]:
                return
            self._receive()

    def keep(self, paths: set[bytes]) -> None:
        """Drops what is known of other paths; without any the helper is not needed."""
        self.answers = {path: answer for path, answer in self.answers.items() if path in paths}
        self.waiting = {path: since for path, since in self.waiting.items() if path in paths}
        if not paths:
            self.close()

    def close(self) -> None:
        """Ends the helper; one that hangs in the kernel stays behind, and is not waited for."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._child is not None:
            import subprocess

            self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_FAREWELL)
            self._child = None

    def _start(self) -> None:
        import subprocess

        from vmsonar_archive.system.children import python

        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = subprocess.Popen(
                    python("-m", "vmsonar.collectors.filesystem.helper", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                self.trouble = f"cannot start the helper: {error.strerror}"
                return
        ours.setblocking(False)
        self._line, self._rest, self.trouble = ours, b"", None

    def _receive(self) -> None:
        assert self._line is not None
        try:
            part = self._line.recv(_SIZE)
        except OSError as error:
            self._lose(f"the helper is gone: {error.strerror}")
            return
        *lines, self._rest = (self._rest + part).split(b"\n")
        if not part or len(self._rest) > _MOST_REST:
            self._lose("the helper is gone")
            return
        for line in lines:
            self._note(line)
        self._backoff.reset()

    def _note(self, line: bytes) -> None:
        named, *figures = line.split(b" ")
        path = bytes.fromhex(named.decode())
        self.waiting.pop(path, None)
        if len(figures) == 1:
            self.answers[path] = int(figures[0][1:])
        else:
            size, blocks, free, available, inodes, inodes_free, inodes_available = map(int, figures)
            self.answers[path] = (size, blocks, free, available, inodes, inodes_free, inodes_available)

    def _lose(self, trouble: str) -> None:
        self.close()
        self.waiting, self.answers, self.trouble = {}, {}, trouble


class _Questions:
    """The helper's own side."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._under_way = 0

    def take(self, named: bytes) -> None:
        with self._lock:
            busy = self._under_way >= MOST
            self._under_way += not busy
        if busy:
            self._answer(named, errno.EBUSY)
        else:
            threading.Thread(target=self._ask, args=(named,), daemon=True).start()

    def _ask(self, named: bytes) -> None:
        answer = ask(bytes.fromhex(named.decode()))
        with self._lock:
            self._under_way -= 1
        self._answer(named, answer)

    def _answer(self, named: bytes, answer: Answer) -> None:
        figures = f"!{answer}" if isinstance(answer, int) else " ".join(map(str, answer))
        with self._lock:
            self._line.sendall(named + b" " + figures.encode() + b"\n")


def main() -> None:
    """Answers until the recorder is gone."""
    line = socket.socket(fileno=int(sys.argv[1]))
    questions = _Questions(line)
    rest = b""
    while part := line.recv(_SIZE):
        *names, rest = (rest + part).split(b"\n")
        for named in names:
            questions.take(named)
    os._exit(0)  # without waiting for threads that hang


if __name__ == "__main__":
    main()
