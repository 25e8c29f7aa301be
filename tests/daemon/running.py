"""Starts a real daemon for a test and looks at what it wrote."""

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vmsonar_archive.read.reader import open_archive

from tests.real.wait import wait_until

ROOT = Path(__file__).parents[2]

# The collectors a journey uses, by name: never the whole list.
NODE = 'Entry("node", "vmsonar.collectors.node")'
_SCRIPT = """\
import sys
from vmsonar.collectors.registry import Entry
from vmsonar.daemon.options import parse
from vmsonar.daemon.loop import run
sys.exit(run(parse(sys.argv[1:]), ({entries},)))
"""


def fake(name: str) -> str:
    return f'Entry("{name}", "tests.daemon.fake_{name}")'


def command(archive, *options, entries=(NODE,), preamble=""):
    script = preamble + _SCRIPT.format(entries=", ".join(entries))
    return [sys.executable, "-c", script, f"--archive={archive}", *options]


@contextlib.contextmanager
def daemon(archive, *options, entries=(NODE,), prefix=(), preamble="", **settings):
    """A daemon that has written its first sample; `said()` is its log so far. It is killed at the end if it runs."""
    line = [*prefix, *command(archive, *options, entries=entries, preamble=preamble)]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(line, cwd=ROOT, stderr=log, text=True, **settings)
        process.said = Path(log.name).read_text
        try:
            wait_for(lambda: process.poll() is not None or len(samples(archive)) > 0)
            yield process
        finally:
            process.kill()
            process.communicate()


def stop(process, number=signal.SIGTERM, timeout=30):
    """Ends it as a service manager would; returns seconds, exit code and log."""
    started = time.monotonic()
    process.send_signal(number)
    _, log = process.communicate(timeout=timeout)
    return time.monotonic() - started, process.returncode, process.said() if log is None else log


def samples(archive):
    if not (Path(archive) / "archive.json").exists():
        return []
    with open_archive(Path(archive)) as opened:
        return list(opened.samples())


def events(archive):
    return [event.event_type for sample in samples(archive) for event in sample.event]


def wait_for(condition, seconds=60):
    wait_until(condition, seconds, "what the daemon should do", every=0.05)
