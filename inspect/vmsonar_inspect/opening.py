"""Opens what a person points at: archives, bundles, folders of them, lakes, object stores."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vmsonar_inspect.inspection import Inspection, Settings
from vmsonar_inspect.tables import BASES, open_tables
from vmsonar_inspect.text import plain
from vmsonar_inspect.waiting import waiting

# What the first screen never asks for, and what it asks of one machine only: if it does all the same, it waits.
_NOT_AT_FIRST = ("cpu", "cost")
_NOT_OF_MANY = (*_NOT_AT_FIRST, "job_day", "energy")


@contextmanager
def opened(
    paths: Sequence[Path | str],
    settings: Settings,
    deep: bool | None = True,
    quiet: bool = False,
    first: bool = False,
) -> Iterator[Inspection]:
    """An inspection of everything that lies at these paths; a shallow one never reads processes.

    None is deep for one machine and shallow for many. With `first` only what the first screen shows is made ready;
    anything else is when it is asked for.
    """
    frame = settings.frame
    with ExitStack() as stack:
        with waiting(f"looking at {_what(paths)}", quiet) as wait:
            tables = open_tables(list(paths), since=frame.since, until=frame.until, wait=wait)
            stack.enter_context(tables)
            if tables.errors and not tables.places:
                raise tables.errors[0]
            deep = len(tables.places) == 1 if deep is None else deep
            wait.title = f"reading {_what(list(tables.places.values()))}"
            unread = (_NOT_OF_MANY if len(tables.places) > 1 else _NOT_AT_FIRST) if first and not deep else ()
            bases = [base for base in BASES if base not in unread]
            # Damage is met when segments are read; what is needed is read in one go, processes only where they matter.
            tables.require([base for base in bases if deep or not base.startswith("process")], wait)
        yield Inspection(tables, tables.places, tables.hosts, tables.findings, settings, deep)


def _what(places: Sequence[Path | str]) -> str:
    return plain(str(places[0])) if len(places) == 1 else f"{len(places)} archives"
