"""What is printed reaches its reader: in any locale, into a pipe that closes, into nothing."""

import json
import os
import subprocess
import sys

import pytest

from vmsonar.config.schema import Collectors, Config
from vmsonar.daemon.once import append_one

VMSONAR = [sys.executable, "-m", "vmsonar"]
FEW = Config(collectors=Collectors(process="none", gpu="none", container="none", energy="none"))
LOCALES = {
    "latin": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    root = tmp_path_factory.mktemp("streams") / "archive"
    for _ in range(2):
        append_one(FEW, root)
    return str(root)


def asked(*line, **more):
    return subprocess.run([*VMSONAR, *line], capture_output=True, check=False, **more)


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("line", [("inspect", "--help"), ("inspect", "ARCHIVE")], ids=" ".join)
def test_a_locale_without_our_signs(archive, locale, line):
    done = asked(*(archive if word == "ARCHIVE" else word for word in line), env=os.environ | LOCALES[locale])
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u" not in done.stdout


def test_signs_keep_their_columns(archive):
    as_ever = asked("inspect", archive).stdout.decode()
    plain = asked("inspect", archive, env=os.environ | LOCALES["ascii"]).stdout.decode("ascii")
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in as_ever.splitlines()]
    assert "?" not in plain


def test_json_is_utf8_everywhere(archive):
    query = "SELECT 'Zürich ▁' AS place"
    done = asked("sql", archive, query, "--json", env=os.environ | LOCALES["latin"])
    assert json.loads(done.stdout.decode()) == [{"place": "Zürich ▁"}]


def test_standard_output_may_be_closed(archive):
    def shell(line):
        words = " ".join([*VMSONAR, *line.split()])
        return subprocess.run(["sh", "-c", f"{words} >&-"], capture_output=True, text=True, check=False)

    for done in (shell("--help"), shell(f"verify {archive}")):
        assert (done.returncode, done.stderr) == (0, "")
    done = shell(f"bundle --archive {archive} -o -")
    assert (done.returncode, done.stderr) == (
        3,
        "vmsonar: standard output is closed: redirect it, or name a file with -o\n",
    )


def test_a_full_disk_behind_standard_output_is_told(archive):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*VMSONAR, "sysinfo"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (3, "vmsonar: No space left on device\n")
