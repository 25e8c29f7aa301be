import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE_NEWNS = 0x20000


@pytest.fixture
def own_mounts(tmp_path) -> Iterator[Path]:
    """A mount namespace of this test's own, and a folder in it: nobody else meets a mount that hangs."""
    libc, folder = ctypes.CDLL(None, use_errno=True), os.getcwd()
    before = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    try:
        mount("--make-rprivate", "/")
        yield tmp_path
    finally:
        assert libc.setns(before, CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        os.close(before)
        os.chdir(folder)


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, timeout=30)


def umount(*words: str | Path) -> None:
    subprocess.run(["umount", *map(str, words)], check=True, timeout=30)
