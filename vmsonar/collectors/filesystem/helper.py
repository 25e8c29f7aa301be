"""The helper process that asks what may hang.

Run as `python -m vmsonar.collectors.filesystem.helper FD`. Comes in: on each line a number and a path, in hexadecimal,
since it may hold any byte. Goes out: the number again and the figures of statvfs(3), or the number of the error. Each
question has a thread of its own, so that one that never returns holds up no other. It ends when its other end is
closed.
"""

import errno
import os
import socket
import sys
import threading
from contextlib import suppress

#: Questions under way at one time; those who hang stay so until their file system answers or is gone.
MOST = 24
_SIZE = 1 << 16

#: Size of a block, blocks: all, free, available; inodes: all, free, available; or the number of an error.
Answer = tuple[int, int, int, int, int, int, int] | int


def ask(path: bytes) -> Answer:
    """The figures of a file system, in the order of a line's."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return error.errno or errno.EIO
    return found[1], found[2], found[3], found[4], found[5], found[6], found[7]


class _Questions:
    """Those that are under way."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._under_way = 0

    def take(self, question: bytes) -> None:
        number, _, path = question.partition(b" ")
        with self._lock:
            busy = self._under_way >= MOST
            self._under_way += not busy
        if busy:
            self._answer(number, errno.EBUSY)
        else:
            threading.Thread(target=self._ask, args=(number, path), daemon=True).start()

    def _ask(self, number: bytes, path: bytes) -> None:
        answer = ask(bytes.fromhex(path.decode()))
        with self._lock:
            self._under_way -= 1
        self._answer(number, answer)

    def _answer(self, number: bytes, answer: Answer) -> None:
        figures = answer if isinstance(answer, tuple) else (answer,)
        with self._lock, suppress(OSError):  # the recorder may be gone
            self._line.sendall(b"%s %s\n" % (number, " ".join(map(str, figures)).encode()))


def main() -> None:
    """Answers until the recorder is gone."""
    line = socket.socket(fileno=int(sys.argv[1]))
    questions = _Questions(line)
    rest = b""
    with suppress(OSError):  # reset, where the recorder left answers unread
        while part := line.recv(_SIZE):
            *lines, rest = (rest + part).split(b"\n")
            for question in lines:
                questions.take(question)
    os._exit(0)  # without waiting for threads that hang


if __name__ == "__main__":
    main()
