"""How far a long operation is: the one who works reports to a Progress, and a subclass shows it."""


class Progress:
    """Counts steps or bytes and shows nothing."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        #: None while nobody knows.
        self.total: int | None = None
        self.done = 0

    def expect(self, total: int, title: str | None = None) -> None:
        """Starts from zero, with this many steps to come."""
        self.title, self.total, self.done = title or self.title, total, 0

    def advance(self, steps: int = 1) -> None:
        """Counts steps as done; a negative number takes them back."""
        self.done += steps
