"""Runs lives_alone.py, a process per interval: its children are forks, which threads of other tests would deadlock."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import requires

pytestmark = requires("docker", "root")
CASES = Path(__file__).with_name("lives_alone.py")


@pytest.mark.parametrize("interval", ["1s", "10s"])
def test_lives_in_a_process_of_their_own(interval):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", interval, str(CASES)]
    done = subprocess.run(
        command, cwd=CASES.parents[3], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
