"""The wheel alone, with base dependencies only: `make wheel` installs it and sets VMSONAR_WHEEL."""

import json
import os
import subprocess
from pathlib import Path

WHEEL = os.environ["VMSONAR_WHEEL"]
EXTRAS = ("docker", "pynvml", "pyarrow", "duckdb", "confluent_kafka", "cryptography", "re2", "pyspark")


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(WHEEL).resolve() / "bin" / arguments[0]
    return subprocess.run(
        [str(program), *arguments[1:]], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


def test_no_extra_is_installed(tmp_path):
    for name in EXTRAS:
        assert run("python", "-c", f"import {name}", folder=tmp_path).returncode == 1, name


def test_it_records_bundles_and_verifies(tmp_path):
    daemon = run("vmsonar", "daemon", "--archive", "a", "--interval", "200ms", "--for", "2s", folder=tmp_path)
    assert daemon.returncode == 0, daemon.stderr
    bundle = run("vmsonar", "bundle", "--archive", "a", "-o", "a.tar", folder=tmp_path)
    assert bundle.returncode == 0, bundle.stderr
    verified = run("vmsonar", "verify", "a", "a.tar", "--json", folder=tmp_path)
    assert verified.returncode == 0, verified.stdout
    assert json.loads(run("vmsonar", "verify", "a", "--json", folder=tmp_path).stdout)["samples"] >= 5


def test_a_command_without_its_extra_says_which_one(tmp_path):
    run("vmsonar", "daemon", "--archive", "a", "--interval", "200ms", "--for", "1s", folder=tmp_path)
    sql = run("vmsonar", "sql", "a", "select 1", folder=tmp_path)
    assert sql.returncode == 3
    assert sql.stderr.count("\n") == 1
    assert "pip install 'vmsonar[inspect]'" in sql.stderr


def test_the_version_and_the_list_of_commands(tmp_path):
    assert run("vmsonar", "--version", folder=tmp_path).stdout.startswith("vmsonar 0.")
    assert "verify" in run("vmsonar", "--help", folder=tmp_path).stdout
