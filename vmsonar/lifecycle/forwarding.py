"""Has everything forwarded that is recorded: by a run of its own, or by the forwarder that runs already."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from vmsonar_archive.lock import holder

from vmsonar.config_forward import Forward
from vmsonar.forward.status import read_status
from vmsonar.places import SYSTEM_FORWARD_STATE, forward_state


def is_configured(forward: Forward) -> bool:
    return bool(forward.brokers or forward.url)


class Forwarding:
    """Begins at once; wait() says whether everything arrived."""

    def __init__(self, archive: Path, config: Path | None, forward: Forward, seconds: float) -> None:
        self._archive = archive
        self._end = time.monotonic() + seconds
        # The unit that tears down has state folders of its own; the cursor is in none of them.
        environment = {name: value for name, value in os.environ.items() if name != "STATE_DIRECTORY"}
        self._state = forward_state(forward.state, environment)
        if forward.state is None and SYSTEM_FORWARD_STATE.is_dir():
            self._state = SYSTEM_FORWARD_STATE
        environment["STATE_DIRECTORY"] = str(self._state)
        self._process = None if holder(self._state) else self._start(config, seconds, environment)

    def wait(self) -> bool:
        if self._process is None:
            return self._wait_for_the_other()
        try:
            return self._process.wait(max(0.1, self._end - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            return False

    def _start(
        self, config: Path | None, seconds: float, environment: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        limit = f"{max(1, int(seconds * 0.8))}s"
        command = [sys.executable, "-I", "-m", "vmsonar", "forward", "--once", "--timeout", limit,
                   "--archive", str(self._archive)]  # fmt: skip
        if config is not None:
            command += ["--config", str(config)]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def _wait_for_the_other(self) -> bool:
        while time.monotonic() < self._end:
            status = read_status(self._state, self._archive)
            if status is not None and status.lag_records == 0:
                return True
            time.sleep(0.2)
        return False
