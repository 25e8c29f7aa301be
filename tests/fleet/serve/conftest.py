"""One served fleet for the tests that only ask."""

from collections.abc import Iterator

import pytest

from tests.fleet.serve.place import Site, make_fleet, site_of


@pytest.fixture(scope="session")
def hosts(site: Site) -> dict[str, str]:
    """The archive of each host."""
    return {
        place["hostname"]: place["archive"]
        for place in site.ask("admin", "/api/v1/machines").json()["archives"]
    }


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("served")
    fleet, _ = make_fleet(folder)
    for site in site_of(fleet, folder / "state"):
        site.catch_up()
        yield site
