"""Archives, bundles, increments, lakes and messages of earlier versions are read, verified and continued, unchanged."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.format.identity import NodeIdentity, read_identity
from vmsonar_archive.read.reader import open_archive

from tests.making.archives import open_writer, rows, utc_now
from tests.parts import requires
from tests.recorded.record import SIGNER, VMSONAR, forwarded
from tests.recorded.told import answers, lines_of

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if path.name.startswith("v"))
pytestmark = [pytest.mark.slow, requires("zstd"), pytest.mark.parametrize("version", VERSIONS)]

Copied = Callable[[str], Path]


@pytest.fixture
def expected(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / version / "expected.json").read_text())
    return found


@pytest.fixture
def copied(version: str, tmp_path: Path) -> Copied:
    """A copy that may be written to."""

    def copy(name: str) -> Path:
        source, target = HERE / version / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        return target

    return copy


def vmsonar(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [VMSONAR, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def test_nobody_touched_them(version: str, expected: dict[str, Any]) -> None:
    folder = HERE / version
    found = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "expected.json"
    }  # fmt: skip
    assert found == expected["files"]


@pytest.mark.parametrize(
    "name", ["machine", "killed", "world", "signed.tar", "tables.tar", "redacted.tar", "cut.tar"]
)
def test_they_verify(name: str, copied: Copied) -> None:
    done = vmsonar("verify", copied(name), "--deep", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert not [found for found in json.dumps(report).split('"severity": ') if found.startswith('"error"')]


def test_increments_verify(version: str) -> None:
    done = vmsonar("verify", *sorted((HERE / version / "increments").iterdir()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_old_signatures_stay_valid(version: str) -> None:
    folder = HERE / version
    signers = ["--allowed-signers", folder / "allowed_signers", "--identity", SIGNER]
    assert vmsonar("verify", folder / "signed.tar", *signers).returncode == 0
    assert vmsonar("verify", folder / "tables.tar", *signers).returncode == 1


@pytest.mark.parametrize("name", ["machine", "killed", "world"])
def test_every_record_is_read(name: str, copied: Copied, expected: dict[str, Any]) -> None:
    with open_archive(copied(name)) as archive:
        found = [f"sample {sample.seq}" for sample in archive.samples()]
        found += [f"sysinfo {sysinfo.seq}" for sysinfo in archive.sysinfos()]
    assert sorted(found) == sorted(expected["lines"][name])


@pytest.mark.parametrize("name", ["machine", "world", "signed.tar", "tables.tar", "cut.tar", "lake"])
def test_answers_are_the_same(name: str, copied: Copied, expected: dict[str, Any]) -> None:
    assert answers(copied(name)) == expected["answers"][name]


@pytest.mark.parametrize("name", ["machine", "killed", "world"])
def test_a_writer_goes_on_and_leaves_what_was_there(
    name: str, copied: Copied, expected: dict[str, Any]
) -> None:
    root = copied(name)
    identity = read_identity(root)
    node = NodeIdentity(machine_id=identity.machine_id, instance_id=identity.instance_id)
    writer = open_writer(root, node=node, now=utc_now)
    for number in range(3):
        writer.append(
            datetime.now(UTC), "5c6e2a3d-8f3b-4d5e-9a1c-2b7f0e6d4c31", 10**15 + number, rows(number)
        )
    writer.tidy()
    assert writer.close()
    assert vmsonar("verify", root, "--deep").returncode == 0
    found = lines_of(root)
    old, new = expected["lines"][name], found.keys() - expected["lines"][name].keys()
    assert {key: found[key] for key in old} == old
    numbers = [int(key.split()[1]) for key in old]
    assert sorted(int(key.split()[1]) for key in new) == [max(numbers) + step for step in (1, 2, 3)]


@pytest.mark.parametrize("dialect", ["native", "sonar"])
@pytest.mark.parametrize("name", ["machine", "world"])
def test_forwarding_says_the_same(
    version: str, name: str, dialect: str, copied: Copied, tmp_path: Path
) -> None:
    kept = (HERE / version / f"forwarded-{name}-{dialect}.jsonl").read_text().splitlines()
    found = forwarded(copied(name), tmp_path, dialect)
    assert [_same(one) for one in found] == [_same(json.loads(line)) for line in kept]


def _same(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what names the version that sends it, and without the header that was added later."""
    message.get("headers", {}).pop("identity", None)
    meta = message["value"].get("meta", {}) if isinstance(message.get("value"), dict) else {}
    meta.pop("version", None)
    return message


def test_the_next_increment_takes_only_what_is_new(copied: Copied, tmp_path: Path) -> None:
    """The receiver's confirmation of an earlier version is still believed."""
    root = copied("world")
    done = vmsonar("bundle", "--archive", root, "--increment", "-o", tmp_path / "next.tar", "--json")
    assert "sample" not in done.stdout or json.loads(done.stdout)["files"] == 0, done.stdout + done.stderr
