import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CLONE_NEWNS = 0x20000


@contextmanager
def private_mounts() -> Iterator[None]:
    """What is mounted here is mounted for us and our children alone."""
    libc, folder = ctypes.CDLL(None, use_errno=True), os.getcwd()
    before = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    try:
        mount("--make-rprivate", "/")
        yield
    finally:
        assert libc.setns(before, CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        os.close(before)
        os.chdir(folder)


@pytest.fixture
def own_mounts(tmp_path) -> Iterator[Path]:
    """A mount namespace of this test's own, and a folder in it: nobody else meets a mount that hangs."""
    with private_mounts():
        yield tmp_path


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, timeout=30)


def umount(*words: str | Path) -> None:
    subprocess.run(["umount", *map(str, words)], check=True, timeout=30)
