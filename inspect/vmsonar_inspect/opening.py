"""Opens what a person points at: archives, bundles, folders of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.reader import open_archive

from vmsonar_inspect.inspection import Inspection, Settings
from vmsonar_inspect.origins import find_origins
from vmsonar_inspect.tables import BASES, open_tables
from vmsonar_inspect.text import plain
from vmsonar_inspect.waiting import waiting


@contextmanager
def opened(
    paths: Sequence[Path], settings: Settings, deep: bool | None = True, quiet: bool = False
) -> Iterator[Inspection]:
    """An inspection of everything that lies at these paths; a shallow one never reads processes.

    None is deep for one machine and shallow for many.
    """
    with waiting("looking", quiet) as wait:
        sources, hosts = find_archives(paths)
        deep = len(sources) == 1 if deep is None else deep
        wait.title = f"looking at {_what(sources)}"
        tables = open_tables(list(paths), since=settings.frame.since, until=settings.frame.until, wait=wait)
        wait.title = f"reading {_what(sources)}"
        # Damage is met when segments are read; what is needed is read in one go, processes only where they matter.
        tables.require([base for base in BASES if deep or not base.startswith("process")], wait)
    with tables:
        yield Inspection(tables, sources, hosts, tables.findings, settings, deep)


def _what(sources: dict[str, str]) -> str:
    return plain(next(iter(sources.values()))) if len(sources) == 1 else f"{len(sources)} archives"


def find_archives(paths: Sequence[Path]) -> tuple[dict[str, str], dict[str, str | None]]:
    """The archives that lie at these paths: where each is and what its machine is called."""
    sources: dict[str, str] = {}
    hosts: dict[str, str | None] = {}
    errors = []
    for path in paths:
        if not path.exists():
            raise VmsonarError(
                f"{path} does not exist: give an archive's folder, a bundle, or a folder of them"
            )
    for origin in find_origins(paths):
        try:
            with open_archive(origin.path) as archive:
                sources.setdefault(archive.identity.archive, str(origin.path))
                hosts.setdefault(archive.identity.archive, archive.identity.hostname_short)
        except VmsonarError as error:
            errors.append(error)
    if not sources:
        raise errors[0] if errors else VmsonarError(nothing_found(paths))
    return sources, hosts


def nothing_found(paths: Sequence[Path]) -> str:
    """The sentence for a folder without archives."""
    where = ", ".join(map(str, paths))
    return f"no archive and no bundle in {where}: give the folder that holds archive.json, or a bundle"
