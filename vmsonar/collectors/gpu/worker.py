"""A thread for calls into a driver, which may hang: the caller waits only so long."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

_Answer = TypeVar("_Answer")
_Work = tuple[Future[object], Callable[[], object]]


class Hanging(Exception):
    """The call has not come back; `first` when it is this caller who found out."""

    def __init__(self, first: bool) -> None:
        super().__init__("a driver call hangs")
        self.first = first


class Worker:
    """Runs one call at a time. While one hangs no other is begun, so no more than one thread is ever lost."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._late: Future[object] | None = None

    def run(self, task: Callable[[], _Answer], seconds: float) -> _Answer:
        """The task's answer; raises Hanging after so many seconds, and at once while an earlier one hangs."""
        if self._late is not None and not self._late.done():
            raise Hanging(first=False)
        self._late = None
        answer: Future[_Answer] = Future()
        self._start().put((answer, task))  # type: ignore[arg-type] # one queue for answers of any type
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.done():
                raise
            self._late = answer  # type: ignore[assignment] # likewise
            raise Hanging(first=True) from None

    def close(self) -> None:
        """Lets the thread end when it has nothing to do; one that hangs is left to the end of the process."""
        if self._thread is not None:
            self._work.put(None)
            self._thread = None

    def _start(self) -> SimpleQueue[_Work | None]:
        if self._thread is None:
            self._work = SimpleQueue()
            self._thread = Thread(target=_serve, args=(self._work,), name=self._name, daemon=True)
            self._thread.start()
        return self._work


def _serve(work: SimpleQueue[_Work | None]) -> None:
    while (item := work.get()) is not None:
        answer, task = item
        try:
            answer.set_result(task())
        except BaseException as error:
            answer.set_exception(error)
        # what the task holds must not live until the next one
        del item, answer, task
