"""What is to be hidden does not leave the machine, in no part of a request."""

import json
from pathlib import Path

import pytest
from vmsonar_archive.format.lines import checked

from tests.archive.dialect.sonar_rules import validate
from tests.forward.http_server import Endpoint
from tests.forward.place import Place, seqs_of
from tests.making.forwarded import make_day


@pytest.mark.parametrize("dialect", ["sonar", "native"])
def test_nothing_of_it_leaves(tmp_path: Path, dialect: str) -> None:
    endpoint = Endpoint()
    place = Place(tmp_path, {"to": "http", "cluster": "c.example", "url": endpoint.url, "dialect": dialect})
    make_day(place.archive, 20)
    assert place.once("--redact", "user,host,command").returncode == 0
    everything = b"".join(body + json.dumps(headers).encode() for headers, body in endpoint.taken)
    identity = json.loads((place.archive / "archive.json").read_text())
    hidden = ["alice", "vm.example", "python3", identity["archive"], identity["machine_id"]]
    assert [word for word in hidden if word.encode() in everything] == []
    records = [record for record in endpoint.records if record["topic"] == "c.example.sample"]
    assert [int(record["headers"]["seq"]) for record in records] == seqs_of(place.archive)
    assert len({record["key"] for record in records}) == 1
    assert "head" not in records[0]["headers"], "it would tell whose archive it is"
    _assert_valid(dialect, records)
    again = place.once("--redact", "user,host,command", "--since", "2026-11-16T14:00:00Z")
    assert again.returncode == 0
    assert endpoint.records[-1] == records[-1], "the same names get the same pseudonyms"
    endpoint.close()


def _assert_valid(dialect: str, records: list[dict]) -> None:
    for record in records:
        text = json.dumps(record["value"], separators=(",", ":"))
        if dialect == "sonar":
            (user,) = {job["user"] for job in validate(text)["jobs"]}
            assert user.startswith("user-")
        else:
            assert json.loads(checked(text.encode()))["run"] == record["headers"]["run"]


def test_what_can_be_hidden_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path, {"to": "http", "cluster": "c.example", "url": "http://localhost:1/"})
    done = place.once("--redact", "names")
    assert done.returncode == 2
    assert done.stderr == "vmsonar: --redact knows user, host, command, path, label and all, not names\n"
