"""A moving bar on standard error when something takes longer than a second; nothing where nobody looks."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 1.0


class Wait:
    """What is waited for, and how far it is; without a total nobody knows."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.total: int | None = None
        self.done = 0
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None

    def expect(self, total: int, title: str | None = None) -> None:
        """So many steps are to come."""
        self.title, self.total, self.done = title or self.title, total, 0
        self._show()

    def advance(self, steps: int = 1) -> None:
        """Some of them are done."""
        self.done += steps
        self._show()

    def start(self) -> None:
        """Shows the bar as it is by now."""
        bar = _bar()
        with self._lock:
            self._task = bar.add_task(self.title, total=self.total, completed=self.done)
            self._bar = bar
        bar.start()

    def stop(self) -> None:
        """Wipes the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.update(self._task, description=self.title, total=self.total, completed=self.done)


@contextmanager
def waiting(title: str, quiet: bool = False) -> Iterator[Wait]:
    """Shows a bar from the second second on, and leaves nothing of it behind."""
    wait = Wait(title)
    if quiet or not sys.stderr.isatty():
        yield wait
        return
    timer = threading.Timer(PATIENCE, wait.start)
    timer.daemon = True
    timer.start()
    try:
        yield wait
    finally:
        timer.cancel()
        timer.join()
        wait.stop()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _percent(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _percent() -> Any:
    """The share that is done, where it is known."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Percent(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.total is None else f"{task.percentage:3.0f} %")

    return Percent()
