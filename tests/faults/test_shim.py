"""The library does to system calls what its rules say, and leaves others alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.shim import Faults

TRY = """
import os, sys
def attempt(what, call):
    try:
        print(what, call(), flush=True)
    except OSError as error:
        print(what, os.strerror(error.errno))
path = sys.argv[1] + "/file"
descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
for _ in range(3):
    attempt("write", lambda: os.write(descriptor, b"0123456789"))
attempt("pwrite", lambda: os.pwrite(descriptor, b"0123456789", 0))
attempt("ftruncate", lambda: os.ftruncate(descriptor, 1))
attempt("fsync", lambda: os.fsync(descriptor))
attempt("fdatasync", lambda: os.fdatasync(descriptor))
attempt("rename", lambda: os.rename(path, path + "2"))
"""
FINE = [
    "write 10",
    "write 10",
    "write 10",
    "pwrite 10",
    "ftruncate None",
    "fsync None",
    "fdatasync None",
    "rename None",
]


def attempts(faults: Faults, folder: Path, *rules: str) -> list[str]:
    faults.set(*rules)
    command = [sys.executable, "-c", TRY, str(folder)]
    done = subprocess.run(command, env=faults.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, -9), done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    (tmp_path / "disk").mkdir()
    (tmp_path / "other").mkdir()
    return Faults(tmp_path / "disk", tmp_path / "rules")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], {}),
        (["write EIO 1"], {0: "write Input/output error"}),
        (
            ["write ENOSPC 2 after=1"],
            {1: "write No space left on device", 2: "write No space left on device"},
        ),
        (["write SHORT=4 1", "write EIO 1"], {0: "write 4", 1: "write Input/output error"}),
        (["write EIO * path=elsewhere", "ftruncate EIO *"], {4: "ftruncate Input/output error"}),
        (
            ["fsync EIO *", "fdatasync EIO *"],
            {5: "fsync Input/output error", 6: "fdatasync Input/output error"},
        ),
        (["rename EROFS *", "write EIO * chance=0"], {7: "rename Read-only file system"}),
        (["write EIO *", "clear", "fsync STALL=0.01 1"], {}),
    ],
)
def test_rules(faults, tmp_path, rules, expected):
    assert attempts(faults, tmp_path / "disk", *rules) == [
        expected.get(number, line) for number, line in enumerate(FINE)
    ]
    assert attempts(faults, tmp_path / "other", *rules) == FINE


def test_what_happened_is_told(faults, tmp_path):
    attempts(faults, tmp_path / "disk", "write EIO 2", "rename STALL=0.01 1")
    assert faults.happened() == {("write", "EIO"): 2, ("rename", "STALL"): 1}


def test_a_process_is_killed_at_a_call(faults, tmp_path):
    assert attempts(faults, tmp_path / "disk", "fsync KILL 1") == FINE[:5]
    assert (tmp_path / "disk" / "file").stat().st_size == 1


def test_a_rule_that_is_not_understood_is_no_success(faults, tmp_path):
    faults.set("write NONSENSE 1")
    command = [sys.executable, "-c", TRY, str(tmp_path / "disk")]
    assert subprocess.run(command, env=faults.environment(), capture_output=True, timeout=60).returncode == 97


def test_replacing_the_rules_ends_a_stall(faults, tmp_path):
    faults.set("fsync STALL=600 1")
    command = [sys.executable, "-c", TRY, str(tmp_path / "disk")]
    with subprocess.Popen(command, env=faults.environment(), stdout=subprocess.DEVNULL) as running:
        while not faults.happened():
            assert running.poll() is None
        faults.clear()
        assert running.wait(timeout=60) == 0
