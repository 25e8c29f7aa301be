"""What every test may use: the mark `requires` and the real parts as fixtures."""

from collections.abc import Iterator

import pytest

from tests.parts import (
    pytest_configure,
    pytest_itemcollected,
    pytest_runtest_makereport,
    pytest_runtest_setup,
)
from tests.real.browser import browser
from tests.real.docker import docker_engine
from tests.real.kafka import kafka_broker
from tests.real.podman import podman_engine
from tests.real.s3 import s3_server
from tests.real.slurm import slurm_cluster

__all__ = [
    "browser",
    "docker_engine",
    "kafka_broker",
    "own_cache",
    "podman_engine",
    "pytest_configure",
    "pytest_itemcollected",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "s3_server",
    "slurm_cluster",
]


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Derived tables of tests stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VMSONAR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
