"""Measures in a pid namespace of its own (pid_namespaces(7)): what else the machine runs is not in the figures."""

import os
import shutil
import subprocess
import sys

import msgspec

from bench import Figure

_ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def alone(module: str) -> list[Figure] | None:
    """The figures that a module prints as JSON when it is run; None where namespaces cannot be had."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return None
    done = subprocess.run([*_ALONE, sys.executable, "-m", module], stdout=subprocess.PIPE, check=False)
    return msgspec.json.decode(done.stdout, type=list[Figure]) if done.returncode == 0 else None
