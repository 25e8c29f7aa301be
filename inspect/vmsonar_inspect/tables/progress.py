"""A progress bar on standard error for work that takes longer than a second; only on a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vmsonar_archive.system.progress import Progress
from vmsonar_archive.system.text import printable

PATIENCE = 1.0


class Bar(Progress):
    """Progress as rich draws it."""

    def __init__(self, title: str, in_bytes: bool) -> None:
        super().__init__(title)
        self._in_bytes = in_bytes
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None

    def expect(self, total: int, title: str | None = None) -> None:
        super().expect(total, title)
        self._show()

    def advance(self, steps: int = 1) -> None:
        super().advance(steps)
        self._show()

    def start(self) -> None:
        """Shows the bar as it is by now."""
        bar = _bar(self._in_bytes)
        with self._lock:
            self._task = bar.add_task(printable(self.title), total=self.total, completed=self.done)
            self._bar = bar
        bar.start()

    def stop(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.update(
                    self._task, description=printable(self.title), total=self.total, completed=self.done
                )


@contextmanager
def waiting(title: str, quiet: bool = False, in_bytes: bool = False) -> Iterator[Progress]:
    """Shows a bar after one second, or at once over bytes, and removes it at the end."""
    if quiet or not sys.stderr.isatty():
        yield Progress(title)
        return
    wait = Bar(title, in_bytes)
    timer = threading.Timer(PATIENCE, wait.start)
    timer.daemon = True
    if in_bytes:
        wait.start()
    else:
        timer.start()
    try:
        yield wait
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        wait.stop()


def _bar(in_bytes: bool) -> Any:
    from rich import progress
    from rich.console import Console

    columns: tuple[progress.ProgressColumn, ...] = (_percent(), progress.TimeElapsedColumn())
    if in_bytes:
        columns = (
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
    title = progress.TextColumn("{task.description}", markup=False)
    console = Console(stderr=True)
    return progress.Progress(title, progress.BarColumn(), *columns, console=console, transient=True)


def _percent() -> Any:
    """A column with the percentage, empty if the total is unknown."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Percent(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.total is None else f"{task.percentage:3.0f} %")

    return Percent()
