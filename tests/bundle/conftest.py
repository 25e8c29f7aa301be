"""A small archive and its bundle, made once."""

from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file

from tests.bundle.making import make_archive


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that nobody writes; do not change it."""
    return make_archive(tmp_path_factory.mktemp("bundle") / "archive")


@pytest.fixture(scope="session")
def bundle(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of that archive."""
    return Path(bundle_to_file(archive, tmp_path_factory.mktemp("bundles")).output)
