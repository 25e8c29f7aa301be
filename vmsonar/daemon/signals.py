"""Signals as flags, with a pipe that wakes the waiting loop (signal(7), the self-pipe trick)."""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

#: Seconds that a command has to clean up after a signal.
_PATIENCE = 0.8


def end_at_signals() -> list[int]:
    """One Ctrl-C, SIGTERM or SIGHUP ends any command within a second; what is ignored stays so.

    The signals that came are in what is returned.
    """
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        came.append(number)
        leave_soon(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end)
    return came


def leave_soon(number: int) -> None:
    """Exits in a moment without waiting for threads or requests that do not end."""
    last = threading.Timer(_PATIENCE, leave, (128 + number,))
    last.daemon = True
    last.start()


def leave(code: int) -> NoReturn:
    """Ends at once, without tearing down threads and libraries, which would wait or complain."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h")  # a bar hides the cursor
    os._exit(code)


class Signals:
    """SIGTERM and SIGINT ask to stop, SIGHUP to read the configuration again.

    At SIGINT `hurry` is called too, because somebody waits at a terminal.
    """

    def __init__(self, hurry: Callable[[], None] | None = None) -> None:
        self.stop = False
        #: By SIGTERM, as a service manager does.
        self.terminated = False
        self.interrupted = False
        self._hurry = hurry
        self.reload = False
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def install(self) -> None:
        """Takes the signals over; only in the main thread."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def uninstall(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, nanoseconds: int) -> None:
        """Waits until the time is up or a signal arrives; returns at once when one is pending."""
        if self.stop or self.reload:
            return
        # rounded up: waking a little late is a late tick, waking early would be a second one
        if self._poll.poll(max(0, -(-nanoseconds // 1_000_000))):
            os.read(self._reader, 512)

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self.stop = True
        self.terminated = self.terminated or number == signal.SIGTERM
        if number == signal.SIGINT and self._hurry is not None:
            self.interrupted = True
            self._hurry()

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.reload = True
