"""Starts `vmsonar run` as a person would, with a home of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 120


def line(*words):
    return [sys.executable, "-m", "vmsonar", "run", *map(str, words)]


def environment(home):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "VMSONAR_"))}
    return {**kept, "HOME": str(home), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}


def run(home, *words, **settings):
    """One command to its end: exit code, output and errors."""
    settings = {
        "env": environment(home),
        "capture_output": True,
        "timeout": SECONDS,
        "check": False,
        **settings,
    }
    return subprocess.run(line(*words), **settings)


def card_of(home, *words, **settings):
    """The card of a command as JSON, and how it ended."""
    path = Path(home) / "card.json"
    path.unlink(missing_ok=True)
    done = run(home, "--json", path, "--", *words, **settings)
    return json.loads(path.read_text()), done


def runs(home):
    return sorted((Path(home) / ".local/state/vmsonar-runs").glob("*/"))


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def recorder_of(pid):
    """The recorder of a `vmsonar run`."""
    return next(each for each in children(pid) if b"--command" in Path(f"/proc/{each}/cmdline").read_bytes())
