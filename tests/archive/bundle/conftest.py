"""A small archive and its bundle, made once."""

import os
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file

from tests.making.bundles import STRANGER, make_archive


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that nobody writes; do not change it."""
    return make_archive(tmp_path_factory.mktemp("bundle") / "archive")


@pytest.fixture(scope="session")
def bundle(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of that archive."""
    return Path(bundle_to_file(archive, tmp_path_factory.mktemp("bundles")).output)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """An archive that belongs to somebody who is not root."""
    archive = make_archive(tmp_path / "archive")
    for path in [archive, *archive.rglob("*")]:
        os.chown(path, STRANGER, STRANGER)
    return archive
