"""Output of the commands: JSON for programs, tables for people."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from vmsonar_archive.read.findings import Finding, Severity
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.system.text import printable

from vmsonar.host.streams import for_programs

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

#: More than this nobody reads on a screen.
_MOST_FINDINGS = 100
#: Wide enough that a table in a pipe or a file is never cut.
_UNSEEN_WIDTH = 200


def print_json(answer: Any) -> None:
    """One JSON document on standard output, indented, with a final newline."""
    for_programs().write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")


def console() -> "Console":
    """A console that obeys NO_COLOR, the terminal's width, and pipes; foreign control characters are plain text."""
    from rich.console import Console
    from rich.segment import Segment

    class Safe(Console):
        def render(self, *given: Any, **named: Any) -> "Iterable[Segment]":
            for segment in super().render(*given, **named):
                text = segment.text
                if segment.control or text.isprintable() or text == "\n":
                    yield segment
                else:
                    yield Segment("\n".join(map(printable, text.split("\n"))), segment.style)

    return Safe(width=None if sys.stdout.isatty() else _UNSEEN_WIDTH, highlight=False)


def say(text: str, to: TextIO | None = None) -> None:
    """One line for people, on standard output unless told otherwise; names in it may be anybody's."""
    print(printable(text), file=to)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], header: bool = True) -> None:
    """A plain table: no boxes, so that it can be read by eye and by awk."""
    titles = [printable(name) for name in titles]
    rows = [tuple(map(printable, row)) for row in rows]
    if not sys.stdout.isatty():
        lines = plain_table([tuple(titles), *rows] if header else rows)
        if lines is not None:
            print(*lines, sep="\n")
            return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=header)
    for name in titles:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


#: Narrower than this a column of words is folded into a ladder of letters.
_READABLE = 16


def fits(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table can be read on this terminal, or in a file."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNSEEN_WIDTH
    widest = (max(map(len, column)) for column in zip(titles, *rows, strict=True))
    return sum(min(cells, _READABLE) + 2 for cells in widest) - 2 <= width


def print_records(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows one below the other, one field per line: for tables that are wider than the terminal."""
    for number, row in enumerate(rows, start=1):
        say(f"-- row {number}")
        print_table(("", ""), zip(titles, row, strict=True), header=False)


def plain_table(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """The lines of a table that needs neither colour nor folding: the same as rich draws, without loading rich."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= _UNSEEN_WIDTH
    if not rows or not fits or not all(cell.isascii() and cell.isprintable() for row in rows for cell in row):
        return None
    return ["  ".join(map(str.ljust, row, widths)) for row in rows]


@contextmanager
def writing_to(place: object) -> Iterator[None]:
    """Names the place in an error of a disk that is full or fails under way, which names none itself."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None and not str(error.filename).endswith((".partial", ".tmp")):
            raise
        raise VmsonarError(f"cannot write {place}: {error.strerror or error}") from None


@contextmanager
def progress_bar(title: str, total: int | None = None) -> Iterator[Progress]:
    """A bar over bytes with rate and time left, on a terminal."""
    if not sys.stderr.isatty():
        yield Progress(title)
        return
    # Here, because it is not needed where nobody looks.
    from vmsonar_inspect.tables.progress import waiting

    with waiting(title, in_bytes=True) as progress:
        if total is not None:
            progress.expect(total)
        yield progress


def print_findings(
    findings: Sequence[Finding],
    where: str = "",
    *,
    lost: bool = False,
    codes: bool = True,
    to: TextIO | None = None,
) -> None:
    """Prints a line per finding, the worst first; of very many only the first ones."""
    for finding in findings[:_MOST_FINDINGS]:
        severity = "lost" if lost else finding.severity.value
        place = "/".join(filter(None, (where, finding.path)))
        words = (severity, finding.code.value if codes else "", place, finding.detail)
        say(": ".join(filter(None, words)), to)
    if len(findings) > _MOST_FINDINGS:
        inside = f" in {where}: --json lists them all" if where else ""
        say(f"and {len(findings) - _MOST_FINDINGS} more{inside}", to)


def tell_findings(findings: Sequence[Finding]) -> Exit:
    """Prints what was found on the way to an answer, beside it; returns the exit code."""
    print_findings(findings, codes=False, to=sys.stderr)
    return Exit.NO if any(finding.severity is Severity.ERROR for finding in findings) else Exit.OK
