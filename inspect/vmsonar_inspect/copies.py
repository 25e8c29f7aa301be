"""Copies a table out of a bundle, and checks on the way that it is what was put in."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from vmsonar_archive.bundle.source import BundleSource
from vmsonar_archive.errors import FormatError
from vmsonar_archive.reader import open_archive

_PIECE = 1024 * 1024


def copier(bundle: Path, name: str) -> Callable[[Path], None]:
    """A call that copies one file of the archive in a bundle to a path."""

    def copy(target: Path) -> None:
        with open_archive(bundle) as archive:
            source = archive.source
            listed = source.sums().get(name) if isinstance(source, BundleSource) else None
            digest = hashlib.sha256()
            with source.open(name) as content, target.open("wb") as sink:
                while piece := content.read(_PIECE):
                    digest.update(piece)
                    sink.write(piece)
        if listed is not None and digest.hexdigest() != listed:
            target.unlink()
            raise FormatError(f"{name} in {bundle} is not what the manifest says: it was damaged")

    return copy
