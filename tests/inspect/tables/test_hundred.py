"""A hundred bundles of which some are damaged, each in another way: they are named, the others answered exactly."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from vmsonar_archive.parquet.derive import derive_due
from vmsonar_inspect.tables.database import open_tables

from tests.making.worlds import Job, Machine
from vmsonar.cli import run

pytestmark = pytest.mark.slow

COUNT = 100
USAGE = "SELECT archive, pgid, samples, round(cpu_seconds, 3) AS cpu FROM job_usage ORDER BY archive"
TABLES = datetime(2026, 11, 17, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of bundles, and the archive of each; every tenth has tables in it."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "bundles").mkdir()
    archives = []
    for number in range(COUNT):
        root = folder / "archive"
        machine = Machine(root, machine_id=f"{number:032x}")
        machine.jobs = [Job(20, start=50.0, end=1e9, cores=number / 100)]
        machine.start_daemon()
        machine.run(3)
        machine.stop_daemon()
        if number % 10 == 7:
            list(derive_due(root, TABLES))
        assert run(["bundle", "--archive", str(root), "-o", str(folder / f"bundles/vm-{number}.tar")]) == 0
        archives.append(json.loads((root / "archive.json").read_text())["archive"])
        shutil.rmtree(root)
    return folder / "bundles", archives


def cut(content: bytes) -> bytes:
    return content[: len(content) // 3]


def flip(content: bytes, inside: str) -> bytes:
    """Changes a byte in the middle of one of the files in a bundle."""
    changed = bytearray(content)
    changed[_middle(content, inside)] ^= 0xFF
    return bytes(changed)


def _middle(content: bytes, inside: str) -> int:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        member = next(one for one in tar.getmembers() if inside in one.name)
        return member.offset_data + member.size // 2


#: The damaged ones, by number.
DAMAGES: dict[int, Callable[[bytes], bytes]] = {
    17: cut,
    34: lambda content: b"",
    51: lambda content: b"PK\x03\x04 no tar at all" * 100,
    68: lambda content: flip(content, "archive.json"),
    85: lambda content: bytes(len(content)),
}


@pytest.fixture
def damaged(fleet: tuple[Path, list[str]], tmp_path: Path) -> Path:
    return with_damage(fleet, tmp_path / "in", DAMAGES)


def with_damage(
    fleet: tuple[Path, list[str]], folder: Path, damages: dict[int, Callable[[bytes], bytes]]
) -> Path:
    """The same bundles, as links, but for those that are damaged."""
    folder.mkdir()
    for number in range(COUNT):
        name = f"vm-{number}.tar"
        if number in damages:
            (folder / name).write_bytes(damages[number]((fleet[0] / name).read_bytes()))
        else:
            (folder / name).hardlink_to(fleet[0] / name)
    return folder


def truth(fleet: tuple[Path, list[str]], without: Iterable[int] = DAMAGES) -> list[dict[str, object]]:
    """What is known of the others: three samples, and 20 seconds between the first and the last."""
    rows = [
        {"archive": archive, "pgid": 20, "samples": 3, "cpu": round(20 * number / 100, 3)}
        for number, archive in enumerate(fleet[1])
        if number not in without
    ]
    return sorted(rows, key=lambda row: str(row["archive"]))


def near(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{**row, "cpu": pytest.approx(row["cpu"], abs=0.011)} for row in rows]


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(one) for one in arguments])
    return code, *capsys.readouterr()


def named(err: str) -> list[int]:
    """The bundles that the lines name, one each."""
    return sorted(int(re.search(r"/vm-(\d+)\.tar", line)[1]) for line in err.splitlines())


def test_a_query(fleet: tuple[Path, list[str]], damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "sql", damaged, USAGE, "--json")
    assert code == 1
    assert json.loads(out) == near(truth(fleet))
    assert named(err) == list(DAMAGES)


def test_an_inspection(
    fleet: tuple[Path, list[str]], damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = ask(capsys, "inspect", damaged, "jobs", "--json")
    found = sorted((row["archive"], row["cpu_seconds"]) for row in json.loads(out)["rows"])
    assert found == [(row["archive"], row["cpu"]) for row in near(truth(fleet))]
    assert named(err) == list(DAMAGES)


def test_a_byte_of_records_and_of_tables(
    fleet: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the records are whole, damaged tables cost nothing; what can be read of damaged records is answered."""
    changes = {36: "sample-", 37: "/samples.parquet", 47: "/series_day.parquet", 57: "/job.parquet"}
    damages = {number: partial(flip, inside=inside) for number, inside in changes.items()}
    folder = with_damage(fleet, tmp_path / "in", damages)
    code, out, err = ask(capsys, "sql", folder, USAGE, "--json")
    found = [row for row in json.loads(out) if row["archive"] != fleet[1][36]]
    assert found == near(truth(fleet, without=[36]))
    assert (code, named(err)) == (1, [36, 37, 47])
    _, out, err = ask(capsys, "sql", folder, "SELECT count(*) AS n FROM job WHERE pgid = 20", "--json")
    assert 3 * (COUNT - 1) <= json.loads(out)[0]["n"] < 3 * COUNT
    assert named(err) == [36, 37, 57]


def test_a_lake(
    fleet: tuple[Path, list[str]], damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    code, _, err = ask(capsys, "export", damaged, "--to", "parquet", "-o", lake)
    assert (code, named(err)) == (1, list(DAMAGES))
    with open_tables([lake]) as tables:
        assert tables.arrow(USAGE).to_pylist() == near(truth(fleet))
    # Once all are whole, the lake gets what it lacks and nothing else.
    code, out, _ = ask(capsys, "export", fleet[0], "--to", "parquet", "-o", lake, "--json")
    assert (code, json.loads(out)["days"]) == (0, len(DAMAGES))
    with open_tables([lake]) as tables:
        assert tables.arrow(USAGE).to_pylist() == near(truth(fleet, without=[]))


@pytest.mark.parametrize("damage", [cut, lambda content: b""], ids=["cut", "empty"])
def test_a_file_of_a_lake(
    fleet: tuple[Path, list[str]], tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """In a lake a damaged file costs the day of that archive."""
    bundles = [fleet[0] / f"vm-{number}.tar" for number in range(3)]
    run(["export", *map(str, bundles), "--to", "parquet", "-o", str(tmp_path)])
    (file,) = tmp_path.glob(f"kind=series_day/*/archive={fleet[1][1]}/*")
    file.write_bytes(damage(file.read_bytes()))
    with open_tables([tmp_path]) as tables:
        assert tables.arrow(USAGE).to_pylist() == near(truth(fleet, without=[1, *range(3, COUNT)]))
        assert [str(tmp_path) in finding.path for finding in tables.findings] == [True]
        assert str(file) in tables.findings[0].detail
