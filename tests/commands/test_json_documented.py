"""docs/commands.md names every field of what `--json` prints, and every code of a finding."""

import json
import re
from pathlib import Path

import pytest
from vmsonar_archive.bundle.write import Bundled
from vmsonar_archive.read.findings import Code, Finding, Report, Severity
from vmsonar_archive.records import Capability
from vmsonar_archive.verify.recover import Recovered
from vmsonar_inspect.facts.comparison import Comparison, Difference, Gate, Scaling, ScalingStep, Side
from vmsonar_inspect.facts.runs import ProgramShare, RunUse

from vmsonar import cli
from vmsonar.config.schema import Collectors, Config
from vmsonar.daemon.once import Appended, append_one
from vmsonar.fleet.collector import Collected
from vmsonar.forward.state import Counts, ForwardStatus
from vmsonar.health.status import Error, Status
from vmsonar.lifecycle.step import Saved

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
FEW = Config(collectors=Collectors(process="none", gpu="none", container="none", energy="none"))


def row(name):
    """The names in the row of one command."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
    return set(re.findall(r"`([a-z_0-9]+)`", line.split("|", 2)[2]))


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("`sample --archive DIR`", (Appended,)),
        ("`status`", (Status, Error)),
        ("`doctor`", (Capability,)),
        ("`bundle`", (Bundled,)),
        ("`verify`", (Report,)),
        ("`recover`", (Recovered,)),
        ("`forward`", (ForwardStatus, Counts)),
        ("`teardown`", (Saved,)),
        ("`collect`", (Collected,)),
        ("`run`", (RunUse, ProgramShare)),
        ("`compare`", (Comparison, Side, Difference, Gate, Scaling, ScalingStep)),
    ],
)
def test_every_field_is_documented(name, types):
    fields = {field for each in types for field in each.__struct_fields__}
    assert fields - row(name) == set()


def test_findings_are_documented():
    tail = PAGE[PAGE.index("A finding has") :]
    names = {code.value for code in Code} | {one.value for one in Severity} | {*Finding.__struct_fields__}
    assert names - set(re.findall(r"`([a-z_]+)`", tail)) == set()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_says_what_it_answers(name, capsys):
    cli.run([name, "--help"])
    has_json = "--json" in capsys.readouterr().out
    rows = [line for line in PAGE[PAGE.index("## JSON") :].splitlines() if line.startswith("|")]
    assert has_json == any(f"`{name}`" in line.split("|")[1] for line in rows)


def test_what_is_printed_is_one_json_document(tmp_path, capsys, monkeypatch):
    archive, bundle = tmp_path / "archive", tmp_path / "b.tar"
    append_one(FEW, archive)
    monkeypatch.setattr("os.nice", lambda _: 0)
    for line in (
        f"status --archive {archive}",
        f"doctor --archive {archive}",
        f"bundle --archive {archive} -o {bundle}",
        f"verify {bundle}",
        f"verify {bundle} {archive}",
        f"recover {bundle} -o {tmp_path}/saved",
        f"inspect {bundle}",
        f"sql {bundle} SELECT+1+AS+one",
        "sql --tables",
        f"export {bundle} --to sonar -o {tmp_path}/sonar",
        f"export {bundle} --to csv -o {tmp_path}/csv",
        f"export {bundle} --to parquet -o {tmp_path}/lake",
        f"derive --archive {archive}",
    ):
        cli.run([word.replace("+", " ") for word in [*line.split(), "--json"]])
        assert json.loads(capsys.readouterr().out) is not None, line
