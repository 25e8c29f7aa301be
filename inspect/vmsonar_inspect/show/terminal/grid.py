"""A plain table that fits: columns leave by rank, nothing wraps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from vmsonar_archive.system.text import printable

from vmsonar_inspect.facts.units import UNKNOWN
from vmsonar_inspect.show.columns import Column

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


_GAP = 2
#: What the marks in cells mean.
_MARKS = {"≥": "≥ at least", "~": "~ estimated", "no group": "no group: of groups beyond this PID namespace"}


class Grid:
    """Rows under their titles; what does not fit is left out by rank."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Any], indent: int = 0, legend: bool = False
    ) -> None:
        self.columns = list(columns)
        self.cells = [[printable(column.write(row)) for column in columns] for row in rows]
        self.indent = indent
        self.legend = legend

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        places = self._fitting(options.max_width - self.indent)
        yield self._line([self.columns[place].title for place, _ in places], places, "bold")
        for cells in self.cells:
            yield self._line([cells[place] for place, _ in places], places, "")
        if words := self._marks([place for place, _ in places]):
            yield Text(f"\n{words}", style="dim")

    def _marks(self, places: list[int]) -> str:
        """Explains the marks that occur in the cells."""
        shown = [cells[place] for cells in self.cells for place in places] if self.legend else []
        words = [words for mark, words in _MARKS.items() if any(cell.startswith(mark) for cell in shown)]
        if UNKNOWN in shown:
            words.append(f"{UNKNOWN} unknown")
        return "; ".join(words)

    def _fitting(self, width: int) -> list[tuple[int, int]]:
        """The columns that fit, each with its width."""
        chosen: dict[int, int] = {}
        left = width + _GAP
        for place in sorted(range(len(self.columns)), key=lambda number: self.columns[number].rank):
            wanted = self._width(place)
            if wanted == 0:
                continue
            column = self.columns[place]
            space = min(wanted, left - _GAP)
            if space < min(wanted, column.least if not column.right else wanted):
                continue
            chosen[place] = space
            left -= space + _GAP
        return sorted(chosen.items())

    def _width(self, place: int) -> int:
        """The width a column wants; 0 when it is empty."""
        column = self.columns[place]
        nothing = {"", UNKNOWN} if column.optional else {""}
        if self.cells and all(row[place] in nothing for row in self.cells):
            return 0
        title, widest = cell_len(column.title), max((cell_len(row[place]) for row in self.cells), default=0)
        return min(widest, column.widest) if widest > title else title

    def _line(self, cells: list[str], places: list[tuple[int, int]], style: str) -> Text:
        parts = []
        for cell, (place, width) in zip(cells, places, strict=True):
            parts.append(_fit(cell, width, self.columns[place].right))
        return Text(
            " " * self.indent + (" " * _GAP).join(parts).rstrip(), style=style, no_wrap=True, end="\n"
        )


def _fit(cell: str, width: int, right: bool) -> str:
    length = cell_len(cell)
    if length > width:
        return set_cell_size(cell, max(0, width - 1)) + "…"
    return " " * (width - length) + cell if right else cell + " " * (width - length)
