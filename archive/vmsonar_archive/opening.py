"""Opens what a person points at: the folder of an archive, or a bundle."""

from pathlib import Path

from vmsonar_archive.bundle.source import BundleSource
from vmsonar_archive.source import FolderSource, Source


def open_source(path: Path) -> Source:
    """The files of an archive, wherever they lie; the caller closes it."""
    return FolderSource(path) if path.is_dir() else BundleSource(path)
