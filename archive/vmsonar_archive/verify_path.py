"""Verifies whatever lies at a path: the folder of an archive, or a bundle, or something that is neither."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from vmsonar_archive.bundle.check import verify_bundle
from vmsonar_archive.bundle.signature import Trust
from vmsonar_archive.bundle.source import BundleSource, NotABundle
from vmsonar_archive.findings import Code, Finding, Report
from vmsonar_archive.source import FolderSource
from vmsonar_archive.verify import Depth, no_progress, verify


def size_at(path: Path) -> int:
    """How many bytes there are to look at."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    source = FolderSource(path)
    try:
        return sum(max(size, 0) for size in source.sizes().values())
    finally:
        source.close()


def verify_path(
    path: Path,
    depth: Depth = Depth.FULL,
    head: str | None = None,
    progress: Callable[[int], None] = no_progress,
    trust: Trust | None = None,
) -> Report:
    """What is found at a path; what is no archive at all is a finding as well."""
    if path.is_dir():
        folder = FolderSource(path)
        try:
            report = verify(folder, depth, head, progress)
            if trust is not None:
                report.add(Finding.of(Code.UNSIGNED, "", "is a folder: only a bundle can be signed"))
            return report
        finally:
            folder.close()
    try:
        bundle = BundleSource(path)
    except NotABundle as error:
        report = Report(findings=[])
        report.add(Finding.of(Code.NOT_A_BUNDLE, "", str(error).removeprefix(f"{path} ")))
        return report
    try:
        return verify_bundle(bundle, depth, head, progress, trust)
    finally:
        bundle.close()


def verify_paths(
    paths: list[Path], depth: Depth, head: str | None, trust: Trust | None, processes: int
) -> Iterator[Report]:
    """Several at once, each in a process of its own; in the order of the paths."""
    # Here, because one archive alone needs none of it.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Not by fork: whoever calls may have threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(verify_path, depth=depth, head=head, trust=trust), paths)
