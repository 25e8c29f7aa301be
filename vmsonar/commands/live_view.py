"""A view that is shown again and again until a signal ends it: in place on a terminal, in sequence elsewhere."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vmsonar_archive.system.errors import UsageError, VmsonarError

from vmsonar.commands.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType


#: Renders the view anew; with True it must leave the screen alone meanwhile.
Look = Callable[[bool], "RenderableType"]


class _Ended(BaseException):
    """A signal ends the view."""


def _wait(seconds: float) -> bool:
    """True when the terminal was resized before that time was over."""
    return signal.sigtimedwait({signal.SIGWINCH}, seconds) is not None


def follow(look: Look, every: float) -> None:
    """Shows what `look` returns until interrupted: in place on a terminal, one after the other elsewhere."""
    ended: list[int] = []
    try:
        with _signals(ended):
            show = _in_place if sys.stdout.isatty() else _in_sequence
            show(look, every)
    except BaseException:
        # An interrupted query may turn the signal into an error of its own.
        if not ended:
            raise
    if ended and ended[0] != signal.SIGINT:
        raise SystemExit(128 + ended[0])


@contextmanager
def _signals(ended: list[int]) -> Iterator[None]:
    """Turns the signals that end a program into an exception; blocks SIGWINCH, which `_wait` picks up."""

    def end(number: int, _frame: object) -> None:
        ended.append(number)
        raise _Ended

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_sequence(look: Look, every: float) -> None:
    while True:
        console().print(_rendered(look, True))
        sys.stdout.flush()
        _wait(every)


def _in_place(look: Look, every: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    def view(quiet: bool) -> Group:
        now = f"{datetime.now(UTC):%H:%M:%S} UTC"
        told = f"as of {now}, again every {every:g} s, Ctrl-C ends"
        return Group(Text(told, style="reverse", no_wrap=True), _rendered(look, quiet))

    with Live(
        view(False), console=console(), screen=True, auto_refresh=False, vertical_overflow="crop"
    ) as live:
        live.refresh()
        while True:
            while _wait(every):
                live.refresh()
            live.update(view(True), refresh=True)


def _rendered(look: Look, quiet: bool) -> "RenderableType":
    """The view, or why there is none yet: the archive may not exist so far."""
    from rich.text import Text

    try:
        return look(quiet)
    except UsageError:
        raise
    except (VmsonarError, OSError) as error:
        return Text(f"{error}")
