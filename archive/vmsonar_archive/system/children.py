"""Starts processes of ours: the same Python, which imports only what is installed.

Run as `python -m vmsonar_archive.system.children [BYTES SECONDS]` it is a helper: it calls the functions that it is
handed on standard input, within those limits, and hands back what they return. Not by multiprocessing, whose children
search the current folder.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from vmsonar_archive.system.errors import VmsonarError

T = TypeVar("T")
_HELPER = "vmsonar_archive.system.children"


class HelperEnded(VmsonarError):
    """A helper did not live to answer."""


def python(*words: str) -> list[str]:
    """The command line; the current folder is never searched for modules (-P, or -I where we run so)."""
    return [sys.executable, "-I" if sys.flags.isolated else "-P", *words]


def can_start() -> bool:
    """False inside a program that embeds Python."""
    return bool(sys.executable)


def is_helper() -> bool:
    """Whether this process is a helper itself, and should start no others."""
    return _HELPER in sys.orig_argv


def side_by_side(function: Callable[..., T], calls: Iterable[tuple[Any, ...]], processes: int) -> Iterator[T]:
    """Yields the results of a function for each tuple of arguments, in order, computed by helper processes."""
    # Here, because the recorder starts no helpers and does without these.
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    helpers = [_start() for _ in range(processes)]
    free: SimpleQueue[Any] = SimpleQueue()
    for helper in helpers:
        free.put(helper)

    def call(arguments: tuple[Any, ...]) -> T:
        helper = free.get()
        try:
            return _ask(helper, function, arguments)
        finally:
            free.put(helper)

    threads = ThreadPoolExecutor(processes)
    try:
        yield from threads.map(call, calls)
    finally:
        for helper in helpers:
            helper.kill()
        threads.shutdown(cancel_futures=True)
        for helper in helpers:
            helper.communicate()


def call_limited(function: Callable[..., T], arguments: tuple[Any, ...], memory: int, seconds: int) -> T:
    """Calls a function on hostile input, in a helper that gets this many bytes of memory and seconds of CPU time."""
    import subprocess

    # One heap for all threads, or each reserves one of its own.
    settings = {**os.environ, "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
    helper = _start(memory, seconds, stderr=subprocess.DEVNULL, env=settings)
    try:
        return _ask(helper, function, arguments)
    finally:
        helper.kill()
        helper.communicate()


def _start(*limits: int, **settings: Any) -> Any:
    import subprocess

    command = python("-m", _HELPER, *map(str, limits))
    # In a group of its own: who interrupts the command interrupts us, and we end the helper.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, **settings
    )


def _ask(helper: Any, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    import pickle

    try:
        pickle.dump((function, arguments), helper.stdin)
        helper.stdin.flush()
        # What it wrote is what it found: it is a process of ours.
        result, error = pickle.load(helper.stdout)  # noqa: S301
    except (OSError, EOFError):
        raise HelperEnded("a helper ended without a result: look at the kernel's log for its end") from None
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def main() -> None:
    """The helper's entry: see the module's docstring."""
    import pickle

    if limits := sys.argv[1:]:
        import resource

        for limit, value in zip((resource.RLIMIT_DATA, resource.RLIMIT_CPU), map(int, limits), strict=True):
            resource.setrlimit(limit, (value, value))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            # What comes in was written by the process that started this one.
            function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301
        except EOFError:
            return
        result, failure = None, None
        try:
            result = function(*arguments)
        except Exception as error:
            failure = error
        pickle.dump((result, failure), answers)
        answers.flush()


if __name__ == "__main__":
    main()
