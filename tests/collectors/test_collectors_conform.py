"""What every collector of the list must be; a new one is checked without a line of its own here."""

import ast
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.records import KINDS, Capability

from tests.fixtures.hosts import MACHINES
from vmsonar.collectors.base import Collector, Rows, Setup, Tick
from vmsonar.collectors.registry import COLLECTORS, make, make_collectors
from vmsonar.config.schema import Collectors, Config

ENTRIES = pytest.mark.parametrize("entry", COLLECTORS, ids=lambda entry: f"{entry.module}:{entry.make}")


def tick(fresh=True):
    return Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=1, boot="b", fresh=fresh)


def test_each_is_listed_once_and_has_its_switch():
    listed = [(entry.module, entry.make) for entry in COLLECTORS]
    assert len(set(listed)) == len(listed)
    assert {entry.name for entry in COLLECTORS} <= set(Collectors.__struct_fields__)


def test_no_kind_is_made_by_two_collectors():
    made = {(one.name, kind) for one in make_collectors(Setup(Config())) for kind in one.kinds}
    owned = [kind for _, kind in made if kind not in ("event", "gap")]
    assert sorted(owned) == sorted(set(owned))


@ENTRIES
def test_a_collector_is_what_its_entry_says(entry):
    collector = make(entry, Setup(Config()))
    assert isinstance(collector, Collector)
    assert collector.name == entry.name
    assert set(collector.kinds) <= set(KINDS)
    assert collector.time_limit is None or 0 < collector.time_limit <= 10
    assert collector.describe().keys() <= {"cards", "engines"}
    collector.close()


@ENTRIES
@pytest.mark.parametrize("machine", MACHINES)
def test_a_collector_works_on_every_fixture_machine(entry, machine, tmp_path):
    """It answers with valid rows of its own kinds, or says what is missing by an OSError; nothing else."""
    collector = make(entry, Setup(Config(), MACHINES[machine](tmp_path)))
    for fresh in (True, False):
        try:
            rows = collector.collect(tick(fresh))
        except OSError:
            continue
        assert isinstance(rows, Rows)
        assert set(rows.by_kind) <= {*collector.kinds, "event", "gap"}
        for kind, found in rows.by_kind.items():
            for row in found:
                msgspec.json.decode(row, type=KINDS[kind])
    collector.close()
    collector.close()


@ENTRIES
@pytest.mark.parametrize("machine", MACHINES)
def test_capabilities_name_a_reason_for_what_is_missing(entry, machine, tmp_path):
    collector = make(entry, Setup(Config(), MACHINES[machine](tmp_path)))
    found = collector.capabilities()
    assert found
    for capability in found:
        assert isinstance(capability, Capability)
        assert capability.collector == entry.name
        assert capability.available or capability.reason
    collector.close()


def uses(text, module, make="make"):
    """Whether a test calls something that it imports from this module, or names the class that makes a collector."""
    package, _, leaf = module.rpartition(".")
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    bound = {
        name.asname or name.name
        for node in imports
        for name in node.names
        if node.module == module or (node.module, name.name) == (package, leaf)
    }
    if make != "make":
        return make in bound and any(
            isinstance(node, ast.Name) and node.id == make for node in ast.walk(tree)
        )
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    owners = [call.value if isinstance(call, ast.Attribute) else call for call in calls]
    return any(isinstance(owner, ast.Name) and owner.id in bound for owner in owners)


@ENTRIES
def test_a_collector_has_a_test(entry):
    others = [path for path in Path(__file__).parent.rglob("*.py") if path != Path(__file__)]
    assert any(uses(path.read_text(), entry.module, entry.make) for path in others)


@pytest.mark.parametrize(
    ("text", "is_use"),
    [
        ("from vmsonar.collectors import net\nnet.make(1)", True),
        ("from vmsonar.collectors.net import NetCollector\nNetCollector(1)", True),
        ("from vmsonar.collectors import net", False),
        ("from vmsonar.collectors import cpu as net\nnet.make(1)", False),
        ("# a net\nnet.make(1)", False),
    ],
)
def test_a_mention_is_no_test(text, is_use):
    assert uses(text, "vmsonar.collectors.net") == is_use


@pytest.mark.parametrize(
    ("text", "is_use"),
    [
        ("from vmsonar.collectors.net import NetCollector\nrows_of(NetCollector)", True),
        ("from vmsonar.collectors.net import NetCollector\n# NetCollector", False),
        ("from vmsonar.collectors.cpu import CpuCollector\nCpuCollector(1)", False),
    ],
)
def test_a_test_of_a_sibling_is_no_test(text, is_use):
    assert uses(text, "vmsonar.collectors.net", "NetCollector") == is_use


def test_what_is_switched_off_is_not_made(tmp_path):
    config = Config(collectors=Collectors(cpu="none"))
    names = [collector.name for collector in make_collectors(Setup(config))]
    assert "cpu" not in names
    assert "node" in names
