"""A wish that leaves nothing is told as such: what was asked, what there is, and exit code 1."""

import json
from pathlib import Path

import pytest

from tests.making.scenes import healthy
from vmsonar.cli import run

FUTURE = "2099-01-01"
#: What the archive of the scene holds.
COVERS = "the archive covers 2026-11-16 08:00:00 UTC to 2026-11-16 08:10:00 UTC"
VIEWS = ["summary", "jobs", "containers", "gpus", "users", "programs", "timeline", "advice", "gaps"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy().record(tmp_path_factory.mktemp("nothing") / "archive", 600)


def told(capsys: pytest.CaptureFixture[str], *line: object) -> tuple[int, str, str]:
    code = run([str(part) for part in line])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("view", VIEWS)
def test_a_time_without_samples(archive: Path, capsys: pytest.CaptureFixture[str], view: str) -> None:
    code, out, err = told(capsys, "inspect", archive, view, "--from", FUTURE)
    assert (code, out) == (1, "")
    assert err.startswith(f"vmsonar: no samples from 2099-01-01 00:00:00 UTC on: {COVERS} with ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("view", "wish", "words"),
    [
        ("summary", ["--user", "nobody"], "no jobs of user nobody: "),
        ("jobs", ["--command", "^zzz$"], "no jobs whose command matches ^zzz$: "),
        ("users", ["--min-runtime", "90d"], "no jobs that ran for "),
        ("programs", ["--user", "nobody", "--from", "2026-11-16"],
         "no jobs of user nobody from 2026-11-16 00:00:00 UTC on: "),
        ("advice", ["--user", "nobody"], "no jobs of user nobody: "),
    ],
)  # fmt: skip
def test_jobs_that_there_are_not(
    archive: Path, capsys: pytest.CaptureFixture[str], view: str, wish: list[str], words: str
) -> None:
    code, out, err = told(capsys, "inspect", archive, view, *wish)
    assert (code, out) == (1, "")
    assert err.startswith(f"vmsonar: {words}")
    assert COVERS in err
    assert " with 1 job of anna\n" in err


def test_containers_of_nobody(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "inspect", archive, "containers", "--user", "nobody")
    assert code == 1
    assert err.startswith("vmsonar: no containers of user nobody: the archive covers")


def test_programs_are_told_too(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, "inspect", archive, "jobs", "--user", "nobody", "--json")
    document = json.loads(out)
    assert (code, document["rows"]) == (1, [])
    assert document["nothing"].startswith("no jobs of user nobody")
    assert document["nothing"] in err
    code, out, err = told(capsys, "inspect", archive, "jobs", "--user", "nobody", "--csv")
    assert (code, len(out.splitlines()), err.count("\n")) == (1, 1, 1)
    assert json.loads(told(capsys, "inspect", archive, "jobs", "--json")[1])["nothing"] is None


def test_no_page_is_made_of_nothing(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert told(capsys, "inspect", archive, "--from", FUTURE, "--html", page)[0] == 1
    assert not page.exists()


def test_a_query_over_a_time_without_samples(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT count(*) AS n FROM samples"
    code, out, err = told(capsys, "sql", archive, query, "--until", "2000-01-01", "--json")
    assert (code, json.loads(out)) == (1, [{"n": 0}])
    assert err == f"vmsonar: no samples before 2000-01-01 00:00:00 UTC: {COVERS}\n"
    assert told(capsys, "sql", archive, query, "--from", "2026-11-16")[0] == 0


def test_no_bundle_is_made_of_nothing(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "b.tar"
    line = ["bundle", "--archive", archive, "-o", place, "--since", FUTURE, "--until", "2100-01-01"]
    code, out, err = told(capsys, *line, "--json")
    assert (code, out, list(tmp_path.iterdir())) == (1, "", [])
    words = "no samples between 2099-01-01 00:00:00 UTC and 2100-01-01 00:00:00 UTC"
    assert err == f"vmsonar: {words}: {COVERS}\n"


@pytest.mark.parametrize("more", [[], ["--redact", "all"], ["--since", "2026-11-16"]])
def test_no_bundle_is_made_of_kinds_that_there_are_not(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    line = ["bundle", "--archive", archive, "-o", tmp_path / "b.tar", *more]
    code, out, err = told(capsys, *line, "--only", "gpu,gpu_process")
    assert (code, out, list(tmp_path.iterdir())) == (1, "", [])
    assert err.startswith("vmsonar: no rows of gpu or gpu_process")
    assert err.count("\n") == 1
    assert told(capsys, *line, "--only", "gpu,node")[0] == 0


def test_a_truncated_bundle_is_not_complete(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, cut = tmp_path / "whole.tar", tmp_path / "cut.tar"
    assert run(["bundle", "--archive", str(archive), "-o", str(whole)]) == 0
    capsys.readouterr()
    assert "samples, complete" in told(capsys, "inspect", whole)[1]
    content = whole.read_bytes()
    for share in (0.5, 0.8, 0.95):
        cut.write_bytes(content[: int(len(content) * share)])
        code, out, err = told(capsys, "inspect", cut)
        assert code in (1, 3)
        assert "samples, complete" not in out
        assert "Went wrong: nothing" not in out
        assert "cut.tar" in err
    code, out, _ = told(capsys, "inspect", cut, "--json")
    assert code == 1
    assert json.loads(out)["rows"][0]["coverage"]["damaged"] is True


def test_nothing_saved_is_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert told(capsys, "recover", tmp_path / "empty", "-o", tmp_path / "saved")[0] == 1
