"""Runs owners_alone.py in a process of its own: its children are forks, which threads of other tests would deadlock."""

import subprocess
import sys
from pathlib import Path

from tests.parts import requires

pytestmark = requires("docker", "root", "netns")
CASES = Path(__file__).with_name("owners_alone.py")


def test_owners_in_a_process_of_their_own():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(
        command, cwd=CASES.parents[3], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
