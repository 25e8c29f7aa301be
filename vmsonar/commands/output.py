"""How every command answers: JSON for programs, a table for people."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.findings import Finding

from vmsonar.streams import for_programs

if TYPE_CHECKING:
    from rich.console import Console

#: More than this nobody reads on a screen.
_MOST_FINDINGS = 100
#: Wide enough that a table in a pipe or a file is never cut.
_UNSEEN_WIDTH = 200


def print_json(answer: Any) -> None:
    """One JSON document on standard output, indented, with a final newline."""
    for_programs().write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")


def console() -> "Console":
    """A console that obeys NO_COLOR, the terminal's width, and pipes."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _UNSEEN_WIDTH, highlight=False)


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, header: bool = True
) -> None:
    """A plain table: no boxes, so that it can be read by eye and by awk."""
    rows = [tuple(row) for row in rows]
    if not sys.stdout.isatty() and title is None:
        lines = plain_table([tuple(titles), *rows] if header else rows)
        if lines is not None:
            print(*lines, sep="\n")
            return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=header)
    for name in titles:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def plain_table(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """The lines of a table that needs neither colour nor folding: the same as rich draws, without loading rich."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= _UNSEEN_WIDTH
    if not (
        rows
        and fits
        and all(cell.isascii() and (not cell or cell.isprintable()) for row in rows for cell in row)
    ):
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
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over bytes with rate and time left, on a terminal; the call in between moves it on."""
    if not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    from rich.console import Console

    with _bar(title, total, Console(stderr=True)) as advance:
        yield advance


@contextmanager
def _bar(title: str, total: int, console: "Console") -> Iterator[Callable[[int], None]]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.advance(task, done)


def print_findings(findings: Sequence[Finding], where: str, lost: bool = False) -> None:
    """One line per finding, the worst first; of very many only the first ones."""
    for finding in findings[:_MOST_FINDINGS]:
        place = f"{where}/{finding.path}" if finding.path else where
        print(
            f"{'lost' if lost else finding.severity.value}: {finding.code.value}: {place}: {finding.detail}"
        )
    if len(findings) > _MOST_FINDINGS:
        print(f"and {len(findings) - _MOST_FINDINGS} more in {where}: --json lists them all")


def tell_findings(findings: Sequence[Finding]) -> None:
    """What was found, a line each on standard error, beside an answer on standard output."""
    for finding in findings[:_MOST_FINDINGS]:
        print(f"{finding.severity}: {finding.path}: {finding.detail}", file=sys.stderr)
    if len(findings) > _MOST_FINDINGS:
        print(f"and {len(findings) - _MOST_FINDINGS} more", file=sys.stderr)
