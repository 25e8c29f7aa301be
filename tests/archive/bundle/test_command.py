"""`vmsonar bundle`, `verify` and `recover` as a person runs them."""

import json
import subprocess
import sys
from pathlib import Path

from vmsonar_archive.read.reader import open_archive

from tests.archive.bundle.commands import vmsonar


def test_into_a_folder(archive: Path, bundle: Path, tmp_path: Path) -> None:
    done = vmsonar("bundle", "--archive", archive, "-o", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().strip() == str(tmp_path / bundle.name)
    assert (tmp_path / bundle.name).read_bytes() == bundle.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [bundle.name]


def test_to_standard_output(archive: Path, bundle: Path) -> None:
    done = vmsonar("bundle", "--archive", archive, "-o", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == bundle.read_bytes()


def test_json(archive: Path, bundle: Path, tmp_path: Path) -> None:
    done = vmsonar("bundle", "--archive", archive, "-o", tmp_path / "x.tar", "--json")
    answer = json.loads(done.stdout)
    assert answer["name"] == bundle.stem
    assert answer["bytes"] == bundle.stat().st_size
    assert answer["findings"] == []


def test_refuses_to_overwrite_and_to_write_inside(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("mine")
    done = vmsonar("bundle", "--archive", archive, "-o", tmp_path / "x.tar")
    assert done.returncode == 3
    assert b"nothing is overwritten" in done.stderr
    assert (tmp_path / "x.tar").read_text() == "mine"
    done = vmsonar("bundle", "--archive", archive, "-o", archive / "2026" / "x.tar")
    assert done.returncode == 2
    assert b"inside the archive" in done.stderr


def test_verify_several_at_once(archive: Path, bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(bundle.read_bytes()[:-700])
    done = vmsonar("verify", archive, bundle, damaged, "--json")
    assert done.returncode == 1
    reports = json.loads(done.stdout)
    assert [reports[str(path)]["ok"] for path in (archive, bundle, damaged)] == [True, True, False]
    assert vmsonar("verify", archive, bundle).returncode == 0


def test_recover_from_a_cut_bundle(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(bundle.read_bytes()[:-4000])
    done = vmsonar("recover", damaged, "-o", tmp_path / "saved")
    assert done.returncode == 0
    assert vmsonar("verify", tmp_path / "saved").returncode == 0
    with open_archive(tmp_path / "saved") as saved, open_archive(damaged) as cut:
        assert list(saved.samples()) == list(cut.samples())


def test_a_quick_look_loads_nothing_that_reads_records():
    code = "import sys, vmsonar_archive.verify.path\nprint(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("zstandard", "vmsonar_archive.format.frames", "concurrent.futures", "statistics"):
        assert f"'{name}'" not in done.stdout
