"""Verifies whatever lies at a path: the folder of an archive, or a bundle, or something that is neither."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from vmsonar_archive.read.findings import Code, Finding, Report
from vmsonar_archive.read.source import BundleSource, FolderSource, NotABundle
from vmsonar_archive.system.children import side_by_side
from vmsonar_archive.system.progress import Progress
from vmsonar_archive.verify.archive import Depth, verify
from vmsonar_archive.verify.bundle import verify_bundle
from vmsonar_archive.verify.signature import Trust


def size_at(path: Path) -> int:
    """How many bytes there are to look at."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    with closing(FolderSource(path)) as source:
        return sum(max(size, 0) for size in source.sizes().values())


def verify_path(
    path: Path,
    depth: Depth = Depth.FULL,
    head: str | None = None,
    progress: Progress | None = None,
    trust: Trust | None = None,
) -> Report:
    """Verifies what lies at a path; where that is no archive at all, this is a finding as well."""
    if path.is_dir():
        with closing(FolderSource(path)) as folder:
            report = verify(folder, depth, head, progress)
        if trust is not None:
            report.add(Finding.of(Code.UNSIGNED, "", "is a folder: only a bundle can be signed"))
        return report
    try:
        bundle = BundleSource(path)
    except NotABundle as error:
        report = Report()
        report.add(Finding.of(Code.NOT_A_BUNDLE, "", str(error).removeprefix(f"{path} ")))
        return report
    with closing(bundle):
        return verify_bundle(bundle, depth, head, progress, trust)


def verify_paths(
    paths: list[Path], depth: Depth, head: str | None, trust: Trust | None, processes: int
) -> Iterator[Report]:
    """Several at once, each in a process of its own; in the order of the paths."""
    return side_by_side(verify_path, [(path, depth, head, None, trust) for path in paths], processes)
