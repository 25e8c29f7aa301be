"""Signals as flags, with a pipe that wakes the one who waits (signal(7), the self-pipe trick)."""

import os
import select
import signal
from types import FrameType


class Signals:
    """SIGTERM and SIGINT ask to stop, SIGHUP to read the configuration again."""

    def __init__(self) -> None:
        self.stop = False
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
        """Waits for so long, or until a signal arrives; returns at once when one is pending."""
        if self.stop or self.reload:
            return
        # rounded up: waking a little late is a late tick, waking early would be a second one
        if self._poll.poll(max(0, -(-nanoseconds // 1_000_000))):
            os.read(self._reader, 512)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.reload = True
