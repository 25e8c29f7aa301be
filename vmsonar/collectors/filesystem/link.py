"""The recorder's end of the line to the helper process that asks what may hang."""

from collections.abc import Collection, Iterable, Mapping

from vmsonar_archive.system.children import python

from vmsonar.collectors.filesystem.helper import Answer
from vmsonar.collectors.link import CompanionLink, is_readable
from vmsonar.host.clock import Clock


class HelperLink(CompanionLink):
    """Starts the helper when it is first needed, and again when it has gone; never waits for it longer than told."""

    farewell = 0.2

    def __init__(self, clock: Clock) -> None:
        super().__init__(None, clock)
        #: The last answer of each file system, by the number that it has here: others may come to lie at its path.
        self.answers: dict[int, Answer] = {}
        #: Those whose answer is awaited, and since when.
        self.waiting: dict[int, int] = {}

    def may_start(self) -> bool:
        return True

    def own_command(self, descriptor: int) -> list[str]:
        return python("-m", "vmsonar.collectors.filesystem.helper", str(descriptor))

    def ask(self, paths: Mapping[int, bytes], now: int) -> None:
        """Asks for those that are not awaited already; `now` is in nanoseconds."""
        self._take_answers()
        new = {number: path for number, path in paths.items() if number not in self.waiting}
        if self._connection is None or not new:
            return
        try:
            self._connection.sendall(b"".join(b"%d %s\n" % (each, new[each].hex().encode()) for each in new))
        except OSError as error:  # BlockingIOError too: it has stopped listening
            self._lose(f"the helper does not listen: {error.strerror}")
        else:
            self.waiting.update(dict.fromkeys(new, now))

    def listen(self, seconds: float, wanted: Iterable[int] = ()) -> None:
        """Takes the answers that are there, and waits up to that long for the wanted ones."""
        until = self._clock.monotonic_ns() + seconds * 1e9
        while self._connection is not None:
            is_awaited = any(number in self.waiting for number in wanted)
            left = (until - self._clock.monotonic_ns()) / 1e9 if is_awaited else 0.0
            if not is_readable(self._connection, left):
                return
            self._take_answers()

    def keep(self, numbers: Collection[int]) -> None:
        """Drops what is known of others; without any the helper is not needed."""
        self.answers = {number: answer for number, answer in self.answers.items() if number in numbers}
        self.waiting = {number: since for number, since in self.waiting.items() if number in numbers}
        if not numbers:
            self.close()

    def _take_answers(self) -> None:
        for line in self.lines():
            number, *figures = map(int, line.split(b" "))
            self.waiting.pop(number, None)
            if len(figures) == 1:
                self.answers[number] = figures[0]
            else:
                size, blocks, free, available, inodes, inodes_free, inodes_available = figures
                self.answers[number] = (size, blocks, free, available, inodes, inodes_free, inodes_available)
        if self._connection is None:
            self.waiting, self.answers = {}, {}
