"""`vmsonar inspect --follow`: the same view again and again while the archive grows."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from vmsonar.commands.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Seconds between two looks.
EVERY = 5.0


def follow(look: "Callable[[], RenderableType]", wait: Callable[[float], None] = time.sleep) -> None:
    """Shows what `look` returns until interrupted: in place on a terminal, one after the other elsewhere."""
    try:
        if sys.stdout.isatty():
            _in_place(look, wait)
        else:
            for view in _views(look, wait):
                console().print(view)
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _in_place(look: "Callable[[], RenderableType]", wait: Callable[[float], None]) -> None:
    from rich.live import Live

    with Live(look(), console=console(), screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        for view in _views(look, wait):
            live.update(view, refresh=True)


def _views(look: "Callable[[], RenderableType]", wait: Callable[[float], None]) -> "Iterator[RenderableType]":
    while True:
        yield look()
        wait(EVERY)
