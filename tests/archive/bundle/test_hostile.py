"""Hostile bundles: each is refused in one clear line, with bounded memory and time, and writes nowhere."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from vmsonar_archive.verify import content
from vmsonar_archive.verify.path import verify_path

from tests.archive.bundle.commands import MEMORY, SECONDS, run_measured
from tests.archive.bundle.hostile import CASES


def _write(path: Path, case: str, good: Path) -> None:
    made = CASES[case](good)
    with path.open("wb") as file:
        for part in [made] if isinstance(made, bytes) else made:
            file.write(part)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_refused_and_bounded(case: str, bundle: Path, tmp_path: Path) -> None:
    _write(tmp_path / "hostile.tar", case, bundle)
    recover = ["recover", "hostile.tar", "-o", "target"]
    runs = run_measured(tmp_path, ["verify", "hostile.tar"], ["verify", "--deep", "hostile.tar"], recover)
    for run in runs:
        assert run["seconds"] < SECONDS, run
        assert run["memory"] < MEMORY, run
        assert "\x1b" not in run["said"]
        assert "Traceback" not in run["said"]
    for run in runs[:2]:
        assert run["code"] in (1, 2), run["said"]
        errors = [text for text in run["said"].splitlines() if text.startswith(("error: ", "vmsonar: "))]
        assert errors
        assert all(len(text) < 400 for text in errors)
    assert runs[2]["code"] in (0, 1, 2), runs[2]["said"]  # some cases leave something to recover
    assert {path.name for path in tmp_path.iterdir()} <= {"hostile.tar", "target"}
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert not Path("/tmp/evil").exists()


def test_a_segment_of_too_many_records_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_MAX_RECORDS", 150_000)
    (tmp_path / "hostile.tar").write_bytes(CASES["records_bomb"](tmp_path))  # type: ignore[arg-type]
    report = verify_path(tmp_path / "hostile.tar")
    assert any("it has more than 150000 records" in one.detail for one in report.findings)


@pytest.mark.slow
def test_reading_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of many sources cost inspect and the CSV export hundreds of megabytes."""
    monkeypatch.setenv("VMSONAR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "hostile.tar").write_bytes(CASES["merges_bomb"](tmp_path))  # type: ignore[arg-type]
    (run,) = run_measured(tmp_path, ["export", "hostile.tar", "--to", "csv", "-o", "out"])
    assert run["memory"] < 2 * MEMORY, run
    (run,) = run_measured(tmp_path, ["inspect", "hostile.tar"])
    assert run["memory"] < 2 * MEMORY, run


@pytest.mark.parametrize(
    "words", [["verify"], ["verify", "--deep"], ["inspect"], ["bundle", "-o", "x.tar", "--archive"]]
)
def test_a_sparse_journal_is_bounded(words: list[str], archive: Path, tmp_path: Path) -> None:
    shutil.copytree(archive, tmp_path / "archive")
    with (tmp_path / "archive" / "journal.jsonl").open("ab") as file:
        file.truncate(2**30)
    (run,) = run_measured(tmp_path, [*words, "archive"])
    assert run["code"] in (1, 3), run["said"]
    assert "journal.jsonl" in run["said"]
    assert run["memory"] < MEMORY, run["memory"]
    assert run["seconds"] < SECONDS


@pytest.mark.parametrize("name", ["archive.json", "journal.jsonl", "2026/11/16/sample-135800-2.jsonl.zst"])
def test_a_socket_in_place_of_a_file_is_refused(
    name: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(archive, tmp_path / "archive")
    place = tmp_path / "archive" / name
    place.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(place.parent)  # the path of a socket has a hundred bytes at most
        listening.bind(place.name)
        runs = run_measured(
            tmp_path, ["verify", "--deep", "archive"], ["bundle", "-o", "x.tar", "--archive", "archive"]
        )
    for run in runs:
        assert run["code"] in (1, 3), run["said"]
        assert place.name in run["said"]


def test_many_at_once_name_the_one_that_is_no_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "random").write_bytes(os.urandom(5000))
    (run,) = run_measured(tmp_path, ["verify", str(bundle), "random"])
    assert run["code"] == 1
    assert "error: not_a_bundle: random: is not a bundle: it is no tar file" in run["said"]
