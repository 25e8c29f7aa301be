"""`vmsonar inspect --follow`: the same view again and again while the archive grows."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vmsonar_archive.errors import UsageError, VmsonarError

from vmsonar.commands.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Looks once more; told whether it must leave the screen alone meanwhile.
Look = Callable[[bool], "RenderableType"]
#: Waits so many seconds, or until the terminal has another size, which is what it tells.
Wait = Callable[[float], bool]


class _Ended(BaseException):
    """Somebody has seen enough."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def wait_or_resize(seconds: float) -> bool:
    return signal.sigtimedwait({signal.SIGWINCH}, seconds) is not None


def follow(look: Look, every: float, wait: Wait = wait_or_resize) -> None:
    """Shows what `look` returns until interrupted: in place on a terminal, one after the other elsewhere."""
    ended: list[int] = []
    try:
        with _signals(ended):
            if sys.stdout.isatty():
                _in_place(look, every, wait)
            else:
                _one_after_the_other(look, every, wait)
    except BaseException:
        # Whatever an interrupted query makes of it.
        if not ended:
            raise
    if ended and ended[0] != signal.SIGINT:
        raise SystemExit(128 + ended[0])


@contextmanager
def _signals(ended: list[int]) -> Iterator[None]:
    """Ends at a signal with the terminal as it was; a change of size is waited for, never in the way."""

    def end(number: int, _frame: object) -> None:
        ended.append(number)
        raise _Ended(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def _one_after_the_other(look: Look, every: float, wait: Wait) -> None:
    while True:
        console().print(_seen(look, True))
        sys.stdout.flush()
        wait(every)


def _in_place(look: Look, every: float, wait: Wait) -> None:
    from rich.console import Group
    from rich.live import Live

    screen = console()
    view = Group(_status(every), _seen(look, False))
    with Live(view, console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        live.refresh()
        while True:
            while wait(every):
                live.refresh()
            live.update(Group(_status(every), _seen(look, True)), refresh=True)


def _status(every: float) -> "RenderableType":
    from rich.text import Text

    now = f"{datetime.now(UTC):%H:%M:%S} UTC"
    return Text(f"as of {now}, again every {every:g} s, Ctrl-C ends", style="reverse", no_wrap=True)


def _seen(look: Look, quiet: bool) -> "RenderableType":
    """The view, or why there is none yet: an archive may still be to come."""
    from rich.text import Text

    try:
        return look(quiet)
    except UsageError:
        raise
    except (VmsonarError, OSError) as error:
        return Text(f"{error}")
