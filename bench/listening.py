"""What the daemon costs beside many forks: with the lifeline, without it, and as another installation has it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import Figure
from bench.peers import SETTLE
from bench.sampling import CONFIG, wait_for_first_sample
from tests.collectors.process.storms import storm
from tests.making.processes import load
from tests.real.meter import cpu_ns, family, pss

SECONDS = 30.0
FORKS = (20, 250)
#: The interpreter of another installation, such as of an earlier commit, to be measured in the same seconds.
OTHER = "VMSONAR_OTHER_PYTHON"
_DEAF = "lifeline:\n  connector: none\n"


def run() -> list[Figure]:
    with load():
        return [figure for forks in FORKS for figure in _beside(forks)]


def _beside(forks: int) -> list[Figure]:
    with ExitStack() as stack, tempfile.TemporaryDirectory() as place:
        pids = {
            "with the lifeline": stack.enter_context(_daemon(Path(place, "hears"), "")),
            "without": stack.enter_context(_daemon(Path(place, "deaf"), _DEAF)),
        }
        if other := os.environ.get(OTHER):
            pids["the other installation"] = stack.enter_context(_daemon(Path(place, "other"), "", other))
        time.sleep(SETTLE)
        with storm(forks):
            before = {name: cpu_ns(family(pid)) for name, pid in pids.items()}
            time.sleep(SECONDS)
            spent = {name: (cpu_ns(family(pid)) - before[name]) / SECONDS / 1e6 for name, pid in pids.items()}
        memory = pss([pids["with the lifeline"]])
    told = f"{forks} forks a second"
    figures = [Figure(f"{told}, {name}", cost, "ms CPU a second") for name, cost in spent.items()]
    listening = spent["with the lifeline"] - spent["without"]
    figures.append(Figure(f"{told}: listening", listening, "ms CPU a second", 20.0 if forks > 100 else 0.5))
    return [*figures, Figure(f"{told}: memory of the daemon", memory / 2**20, "MB PSS", 18.0)]


@contextmanager
def _daemon(folder: Path, more: str, python: str = sys.executable) -> Iterator[int]:
    """A daemon that has written its first sample."""
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG + more)
    words = [
        "--archive",
        str(folder / "archive"),
        "--config",
        str(folder / "config.yaml"),
        "--interval",
        "1s",
    ]
    with subprocess.Popen(
        [python, "-m", "vmsonar.daemon", *words], stderr=subprocess.DEVNULL, cwd="/"
    ) as process:
        try:
            wait_for_first_sample(folder / "archive")
            yield process.pid
        finally:
            process.terminate()
