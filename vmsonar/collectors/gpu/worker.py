"""A thread for calls into a driver, which may hang: the caller waits only so long."""

from collections.abc import Callable
from threading import Event, Semaphore, Thread
from typing import TypeVar

_Answer = TypeVar("_Answer")


class Hanging(Exception):
    """The call has not come back."""


class _Call:
    """A task and what became of it."""

    __slots__ = ("answer", "done", "error", "task")

    def __init__(self, task: Callable[[], object]) -> None:
        self.task = task
        self.answer: object = None
        self.error: BaseException | None = None
        self.done = Event()

    def run(self) -> None:
        try:
            self.answer = self.task()
        except BaseException as error:
            self.error = error
        self.done.set()


class Worker:
    """Runs one call at a time. While one hangs no other is begun, so no more than one thread is ever lost."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        self._call: _Call | None = None
        self._asked = Semaphore(0)

    def run(self, task: Callable[[], _Answer], seconds: float) -> _Answer:
        """The task's answer; raises Hanging after so many seconds, and at once while an earlier one hangs."""
        if self._call is not None and not self._call.done.is_set():
            raise Hanging
        call = self._call = _Call(task)
        self._start()
        self._asked.release()
        if not call.done.wait(seconds):
            raise Hanging
        self._call = None
        if call.error is not None:
            raise call.error
        return call.answer  # type: ignore[return-value] # it is what the task returned

    def close(self) -> None:
        """Lets the thread end when it has nothing to do; one that hangs is left to the end of the process."""
        if self._thread is not None and self._call is None:
            self._asked.release()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while self._asked.acquire() and self._call is not None:
            self._call.run()
