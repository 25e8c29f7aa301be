"""The dashboards: as the table makes them, and every query of every panel finds something in a real Prometheus."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from vmsonar_archive.dialect.grafana import dashboards
from vmsonar_archive.dialect.metrics import table

from tests.making.metered import Everything, command, exported
from tests.parts import requires
from tests.real.prometheus import Prometheus, import_history, prometheus

PAGES = Path(__file__).parents[2] / "docs" / "grafana"
QUERIES = [
    (name, panel["title"], target["expr"])
    for name, dashboard in dashboards().items()
    for panel in dashboard["panels"]
    for target in panel["targets"]
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    folder = tmp_path_factory.mktemp("grafana")
    machine = Everything(folder / "archive")
    machine.start_daemon()
    machine.run(40)
    machine.stop_daemon()
    import_history(sorted(exported(folder / "archive", folder / "om").glob("*.om")), folder / "data")
    with prometheus(folder) as server:
        yield server, machine.now().timestamp()


@requires("prometheus")
@pytest.mark.parametrize(("name", "title", "query"), QUERIES)
def test_every_query_finds_something(served: tuple[Prometheus, float], name: str, title: str, query: str):
    server, now = served
    chosen = query.replace("$instance", ".*").replace("$__rate_interval", "1m")
    assert server.query(chosen, now), (name, title)


@requires("prometheus")
@pytest.mark.parametrize("name", dashboards())
def test_every_variable_has_values(served: tuple[Prometheus, float], name: str):
    """Asked as Grafana asks for label_values(); a machine that is chosen from them has its figures."""
    server, now = served
    variables = [one for one in dashboards()[name]["templating"]["list"] if one["type"] == "query"]
    for variable in variables:
        matched = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert matched
        values = server.label_values(matched[2], matched[1])
        assert values == ["vm"]
        first = dashboards()[name]["panels"][0]["targets"][0]["expr"].replace("$__rate_interval", "1m")
        assert server.query(first.replace(f"${variable['name']}", values[0]), now)
        assert not server.query(first.replace(f"${variable['name']}", "another"), now)
    assert [one["name"] for one in variables] == ["instance"]


@requires("prometheus")
def test_every_metric_of_the_table_arrives(served: tuple[Prometheus, float]):
    server, now = served
    found = {one["metric"]["__name__"] for one in server.query('{__name__=~"vmsonar_.*"}', now)}
    assert {one.name for one in table().metrics if one.kind != "sysinfo"} <= found


def test_the_files_are_what_the_table_makes(tmp_path: Path):
    made = {name: json.loads(json.dumps(dashboard)) for name, dashboard in dashboards().items()}
    assert {path.name: json.loads(path.read_text()) for path in PAGES.glob("*.json")} == made
    done = subprocess.run(
        [*command(tmp_path)[:4], "--dashboards", str(tmp_path)], check=True, capture_output=True
    )
    assert len(done.stdout.splitlines()) == len(made)
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")} == made


def lost(written: Any, read: Any, place: str = "") -> Iterator[str]:
    """What is not the same in both."""
    if isinstance(written, dict):
        for key, value in written.items():
            if key in read:
                yield from lost(value, read[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}"
    elif isinstance(written, list):
        for number, (value, other) in enumerate(zip(written, read, strict=True)):
            yield from lost(value, other, f"{place}[{number}]")
    elif written != read:
        yield place


@pytest.mark.parametrize("bogus", [False, True])
def test_grafanas_own_types_know_every_key(bogus: bool):
    register_default_plugins()
    for dashboard in dashboards().values():
        written = json.loads(json.dumps(dashboard))
        if bogus:
            written["panels"][0]["targets"][0]["no_such_key"] = 1
        read = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
        assert list(lost(written, read)) == ([".panels[0].targets[0].no_such_key"] if bogus else [])


def test_panels_are_whole_and_do_not_overlap():
    for dashboard in dashboards().values():
        places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in dashboard["panels"]]
        assert len(set(places)) == len(places)
        assert len({one["id"] for one in dashboard["panels"]}) == len(places)
        assert {one["name"] for one in dashboard["templating"]["list"]} == {"datasource", "instance"}
        for panel in dashboard["panels"]:
            assert panel["type"] in ("timeseries", "stat", "table")
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["fieldConfig"]["defaults"]["unit"]
