"""Decoding every record keeps the interpreter busy: a deep look at much is spread over processes, one per core."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path

from vmsonar_archive.check import Checked
from vmsonar_archive.journal import Entry
from vmsonar_archive.opening import open_source
from vmsonar_archive.verify import no_progress
from vmsonar_archive.verify_content import check_file

# Below this a process takes longer to start than it saves.
_WORTH_BYTES = 4 * 1024 * 1024
# Enough pieces that no process is left with a long last one.
_PIECES = 8

_Items = list[tuple[str, Entry | None]]


def can_spread(entries: Iterable[Entry | None]) -> bool:
    """Whether it is worth it; not in a process that is a helper itself."""
    size = sum(entry.bytes for entry in entries if entry is not None)
    return size > _WORTH_BYTES and (os.cpu_count() or 1) > 1 and parent_process() is None


def spread(name: str, items: _Items, progress: Callable[[int], None]) -> list[Checked]:
    """Looks deeply into files, side by side; the results are in the order of the items."""
    processes = os.cpu_count() or 1
    step = max(1, len(items) // (processes * _PIECES))
    pieces = [items[begin : begin + step] for begin in range(0, len(items), step)]
    results: list[Checked] = []
    # Not by fork: whoever calls may have threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for piece, found in zip(pieces, pool.map(_check, [name] * len(pieces), pieces), strict=True):
            progress(sum(entry.bytes for _, entry in piece if entry is not None))
            results += found
    return results


def _check(name: str, items: _Items) -> list[Checked]:
    source = open_source(Path(name))
    try:
        return [check_file(source, item, deep=True, progress=no_progress) for item in items]
    finally:
        source.close()
