"""One bit changed in a lake, the cache or an archive's tables is named or made good, and never another answer."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.parquet.derive import derive_due
from vmsonar_archive.read.findings import Code, Severity
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.progress import Progress
from vmsonar_inspect.tables.cache import is_whole, keep
from vmsonar_inspect.tables.database import open_tables
from vmsonar_inspect.tables.lakes import verify_lake
from vmsonar_inspect.tables.stores import lake_at

from tests.making.worlds import START, make_days
from vmsonar.cli import run

pytestmark = pytest.mark.slow

#: What is asked: integers, floats and strings, and a summary.
TABLES = ("samples", "node", "job", "gpu", "process_info", "job_day")
#: What of a lake or an archive is read for it.
READ = ("table-", "_manifest", "samples", "node", "job", "gpu", "process_info", "series_day", "sysinfo")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flips") / "archive"
    make_days(root)
    return root


@pytest.fixture(scope="module")
def lake(archive: Path) -> Path:
    assert run(["export", str(archive), "--to", "parquet", "-o", str(archive.parent / "lake")]) == 0
    return archive.parent / "lake"


def ask(place: Path, cache: Path | bool = False) -> tuple[list[Any], list[str]]:
    """The answers, and which files are named as damaged."""
    with open_tables([place], cache=cache) as tables:
        rows = [tables.arrow(f"SELECT * FROM {table} ORDER BY ALL") for table in TABLES]
        return rows, [str(one) for one in tables.findings if one.severity is Severity.ERROR]


def flips(root: Path, count: int, seed: int, pattern: str = "*.parquet") -> Iterator[Path]:
    """Changes one bit at a time, each in a file and at a place that chance chooses; every one is undone."""
    chance = random.Random(seed)
    for _ in range(count):
        # What a cache threw away was made again, perhaps under another name.
        found = sorted(path for path in root.rglob(pattern) if path.is_file() and path.stat().st_size)
        path = chance.choice([path for path in found if any(name in str(path) for name in READ)])
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        yield path
        path.write_bytes(whole)


def survive(root: Path, asked: Callable[[], tuple[list[Any], list[str]]], count: int, seed: int) -> list[str]:
    """What went wrong with flips in a folder: another answer without a word, or something that is no answer."""
    truth, named = asked()
    assert named == []
    wrong = []
    for path in flips(root, count, seed):
        try:
            rows, named = asked()
        except VmsonarError:
            continue
        except Exception as error:
            wrong.append(f"{path.name}: {type(error).__name__}: {error}")
            continue
        if rows != truth and not any(path.stem in one for one in named):
            wrong.append(f"{path}: another answer, and not a word: {named}")
    return wrong


def in_lake(lake: Path, folder: Path, count: int, seed: int) -> list[str]:
    shutil.copytree(lake, folder / "lake")
    return survive(folder / "lake", lambda: ask(folder / "lake"), count, seed)


def in_cache(archive: Path, folder: Path, count: int, seed: int) -> list[str]:
    truth = ask(archive)
    ask(archive, folder / "cache")
    wrong = survive(folder / "cache", lambda: ask(archive, folder / "cache"), count, seed)
    assert ask(archive, folder / "cache") == truth
    return wrong


def in_tables(archive: Path, folder: Path, count: int, seed: int) -> list[str]:
    shutil.copytree(archive, folder / "archive")
    list(derive_due(folder / "archive", START.replace(day=18)))
    return survive(folder / "archive", lambda: ask(folder / "archive"), count, seed)


def test_a_flip_in_a_lake(lake: Path, tmp_path: Path) -> None:
    assert in_lake(lake, tmp_path, 8, seed=19) == []


def test_a_flip_in_the_cache(archive: Path, tmp_path: Path) -> None:
    assert in_cache(archive, tmp_path, 8, seed=20) == []


def test_a_flip_in_an_archive_s_tables(archive: Path, tmp_path: Path) -> None:
    assert in_tables(archive, tmp_path, 8, seed=21) == []


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 105))
def test_very_many_flips(archive: Path, lake: Path, tmp_path: Path, seed: int) -> None:
    assert in_lake(lake, tmp_path, 80, seed) == []
    assert in_cache(archive, tmp_path, 80, seed) == []
    assert in_tables(archive, tmp_path, 80, seed) == []


def test_verify_finds_every_flip_in_a_lake(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    target = lake_at(tmp_path / "lake")
    assert verify_lake(target, quick=False, progress=Progress()).ok
    for path in flips(tmp_path / "lake", 80, seed=22, pattern="*.*"):
        report = verify_lake(target, quick=False, progress=Progress())
        named = {finding.path for finding in report.findings if finding.code is Code.CORRUPT}
        assert named == {str(path.relative_to(tmp_path / "lake"))}


def test_every_flip_in_a_kept_file_is_found(tmp_path: Path) -> None:
    for number in range(80):
        (tmp_path / "table.parquet").write_bytes(random.Random(number).randbytes(1 + 100 * number))
        path = keep(tmp_path / "table.parquet", tmp_path)
        assert path is not None
        assert is_whole(path)
        (flipped,) = flips(tmp_path, 1, seed=number)
        assert flipped == path
        next(flips(tmp_path, 1, seed=number))
        assert not is_whole(path)
        assert not path.exists()


def verified(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[tuple[str, str]]]:
    capsys.readouterr()
    code = run(["verify", *map(str, arguments), "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return code, [(one["code"], one["path"]) for one in found]


def test_verify_takes_a_lake(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    assert verified(capsys, place) == (0, [])
    assert run(["verify", str(place)]) == 0
    assert "whole" in capsys.readouterr().out
    node, job = (sorted(place.glob(f"kind={kind}/*/*/*.parquet")) for kind in ("node", "job"))
    whole = node[0].read_bytes()
    node[0].write_bytes(whole[:-1] + b"2")
    job[0].unlink()
    shutil.copy(job[1], job[1].with_name("0123.parquet"))
    os.mkfifo(place / "kind=job" / "date=2026-11-15" / "fifo")
    name = {
        path: str(path.relative_to(place)) for path in (node[0], job[0], job[1].with_name("0123.parquet"))
    }
    expected = [("missing", name[job[0]]), ("unlisted", name[job[1].with_name("0123.parquet")])]
    expected.append(("refused", "kind=job/date=2026-11-15/fifo"))
    code, found = verified(capsys, place, "--quick")
    assert (code, sorted(found)) == (1, sorted(expected))
    code, found = verified(capsys, place)
    assert (code, sorted(found)) == (1, sorted([*expected, ("corrupt", name[node[0]])]))
    node[0].write_bytes(whole + b"x")
    assert ("corrupt", name[node[0]]) in verified(capsys, place, "--quick")[1]


def test_what_no_manifest_lists_is_not_read(lake: Path, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    truth = ask(place)[0]
    for path in place.glob("kind=*/date=2026-11-15/*/*.parquet"):
        shutil.copy(path, path.with_name("feed.parquet"))
    with open_tables([place], cache=False) as tables:
        assert [one.code for one in tables.findings] == ["unlisted"]
    assert ask(place)[0] == truth


def test_a_manifest_that_is_gone_or_damaged(archive: Path, lake: Path, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    manifest = max((place / "_manifest").iterdir(), key=lambda path: path.stat().st_size)
    manifest.write_bytes(manifest.read_bytes().replace(b'"bytes":', b'"bytes": ', 1))
    rows, named = ask(place)
    assert [len(table) for table in rows] == [0] * len(TABLES)
    assert manifest.name in named[0]
    # The next export makes it good.
    manifest.unlink()
    assert run(["export", str(archive), "--to", "parquet", "-o", str(place)]) == 0
    assert ask(place) == ask(lake)
    assert run(["verify", str(place)]) == 0


def test_an_export_makes_a_damaged_file_good(archive: Path, lake: Path, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    path = sorted(place.glob("kind=job/*/*/*.parquet"))[0]
    path.write_bytes(path.read_bytes()[:-5])
    assert run(["export", str(archive), "--to", "parquet", "-o", str(place)]) == 1
    assert run(["export", str(archive), "--to", "parquet", "-o", str(place)]) == 0
    assert run(["verify", str(place)]) == 0
    assert ask(place) == ask(lake)


def test_a_lake_of_an_earlier_version(
    archive: Path, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    shutil.rmtree(place / "_manifest")
    with open_tables([place], cache=False) as tables:
        assert [(one.code, one.severity) for one in tables.findings] == [("unchecked_tables", "note")]
        assert "made by an earlier version" in tables.findings[0].detail
    assert ask(place) == ask(lake)
    assert verified(capsys, place) == (0, [("unchecked_tables", "")])
    assert run(["verify", str(place)]) == 0
    assert "NOT CHECKED" in capsys.readouterr().out
    # From the next export on it can be checked.
    assert run(["export", str(archive), "--to", "parquet", "-o", str(place)]) == 0
    assert verified(capsys, place) == (0, [])
    assert ask(place) == ask(lake)


@pytest.mark.parametrize("listed", [True, False])
def test_what_is_no_file_is_named_and_never_waited_for(
    lake: Path, tmp_path: Path, listed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    if not listed:
        shutil.rmtree(place / "_manifest")
    fifo, loop, device = (
        sorted(place.glob(f"kind={kind}/*/*/*.parquet"))[0] for kind in ("job", "node", "gpu")
    )
    for path in (fifo, loop, device):
        path.unlink()
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    device.symlink_to("/dev/zero")
    (place / "kind=net" / "round").symlink_to(place)
    for query in ("SELECT * FROM job", "SELECT * FROM node", "SELECT * FROM gpu"):
        assert run(["sql", str(place), query, "--json"]) == 1
        assert "2026-11-15" in capsys.readouterr().err
    assert run(["verify", str(place)]) == (1 if listed else 0)
