"""Which rows of a table's files count, as SQL conditions that both engines know."""

from collections.abc import Iterator, Sequence

from vmsonar_archive.parquet.stamps import Span

from vmsonar_inspect.engine import quoted
from vmsonar_inspect.parcels import SUMMARIES
from vmsonar_inspect.plan import Window


def conditions(table: str, window: Window, without: Sequence[Span]) -> Iterator[str]:
    """The time that is asked for, and the records that other files hold."""
    if table in SUMMARIES:
        yield f"source_table = {quoted(SUMMARIES[table])}"
        return
    # What is said once per segment holds for later samples too.
    timed = not table.endswith("info")
    for border, sign in ((window.since, ">="), (window.until, "<")):
        if timed and border is not None:
            yield f"unix_micros(time) {sign} {round(border.timestamp() * 1e6)}"
    for span in without:
        same = f"run = {quoted(span.run)} AND boot = {quoted(span.boot)}"
        yield f"NOT ({same} AND seq BETWEEN {span.first} AND {span.last})"
