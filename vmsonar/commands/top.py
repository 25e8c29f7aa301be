"""`vmsonar top`: who uses this machine now, and a moment ago; a viewer that only reads what a recorder writes."""

import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError
from vmsonar_archive.system.moments import zone_of
from vmsonar_archive.system.rights import work_as_owner
from vmsonar_archive.write.lock import holder

from vmsonar.commands.options import argument, option
from vmsonar.commands.output import console
from vmsonar.config.file import archive_in_question

#: How often the archive is looked at for something new.
_LOOK = 0.5
#: The letter that stands for an arrow, a page key or End, by the end of its sequence.
_SPECIAL = {"A": "k", "B": "j", "C": "t", "D": "T", "5~": "<", "6~": ">", "F": "e", "4~": "e"}
_KEY = re.compile(r"(\x1b[\[O]([0-9]~|[A-Z])|.)", re.DOTALL)
_ORDERS = {"P": "cores", "M": "memory", "I": "io", "G": "gpu"}
#: How many samples each key steps over.
_STEPS = {"T": -1, "t": 1, "[": -60, "]": 60}


def top_command(
    path: Annotated[Path | None, argument("[PATH]", "An archive or bundle; else the recorder's.")] = None,
    tz: Annotated[str, option("ZONE", "Time zone, such as Europe/Berlin.")] = "UTC",
) -> int:
    """Shows who uses the machine, live, and steps back in time through what was recorded.

    Where no recorder runs, one is started for as long as you look; what it recorded is removed afterwards.
    Keys: q quit; P, M, I, G sort by cores, memory, I/O, GPU; p processes; arrows up and down (or j and k) scroll;
    left and right (or T and t) step by a sample, [ and ] by sixty; space holds the time, End goes back to now.

    Example: vmsonar top vm.tar
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("vmsonar top needs a terminal: vmsonar inspect answers in a pipe")
    zone = zone_of(tz)
    with _archive(path) as root:
        work_as_owner([root])
        _Viewer(root, zone).run()
    return Exit.OK


@contextmanager
def _archive(path: Path | None) -> Iterator[Path]:
    """What to look at: the path, the archive that is being written, or that of a recorder of our own."""
    given = archive_in_question(None) if path is None else path
    if path is not None or holder(given) is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="vmsonar-top-", ignore_cleanup_errors=True) as folder:
        root = Path(folder) / "archive"
        line = python("-m", "vmsonar.daemon", f"--archive={root}", "--interval=1s", "--for=24h")
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
            try:
                while not list(root.glob("*/*/*/sample-*")):
                    if recorder.poll() is not None:
                        raise VmsonarError("no recorder could be started: see what vmsonar daemon says")
                    time.sleep(0.05)
                yield root
            finally:
                recorder.terminate()


class _Viewer:
    """The loop: a key or the time, then the screen."""

    def __init__(self, root: Path, zone: tzinfo) -> None:
        from vmsonar_inspect.facts.programs import load_programs
        from vmsonar_inspect.show.terminal.reel import Reel
        from vmsonar_inspect.show.terminal.top import TopScreen

        self._reel = Reel(root)
        self._screen = TopScreen(zone)
        self._programs = load_programs()
        #: Number of the sample that is shown; None follows the newest.
        self._held: int | None = None

    def run(self) -> None:
        from rich.live import Live

        before = termios.tcgetattr(sys.stdin)
        try:
            tty.setcbreak(sys.stdin)
            with Live(self._screen, console=console(), screen=True, auto_refresh=False) as live:
                keys: list[str] = []
                while "q" not in keys:
                    for key in keys:
                        self._obey(key)
                    self._show()
                    live.refresh()
                    keys = _keys(_LOOK)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
            self._reel.close()

    def _show(self) -> None:
        from vmsonar_inspect.show.terminal.top import Instant

        self._reel.refresh()
        newest, shown = len(self._reel) - 1, self._screen.instant
        number = newest if self._held is None else self._held
        self._screen.told = "live" if self._held is None else f"{newest - number} back"
        sample = self._reel.sample(number) if number >= 0 else None
        if sample is not None and (shown is None or shown.now.seq != sample.seq):
            before = self._reel.sample(number - 1) if number else None
            self._screen.instant = Instant(self._reel, self._programs, sample, before)

    def _obey(self, key: str) -> None:
        screen, page = self._screen, max(1, shutil.get_terminal_size().lines - 8)
        scroll = {"k": -1, "j": 1, "<": -page, ">": page}
        if key in _ORDERS:
            screen.order, screen.first = _ORDERS[key], 0
        elif key == "p":
            screen.by_process, screen.first = not screen.by_process, 0
        elif key in scroll:
            screen.first = max(0, screen.first + scroll[key])
        elif key in _STEPS:
            self._step(_STEPS[key])
        elif key in (" ", "e"):
            self._held = len(self._reel) - 1 if self._held is None and key == " " else None

    def _step(self, by: int) -> None:
        last = len(self._reel) - 1
        wanted = (last if self._held is None else self._held) + by
        while wanted < 1 and (added := self._reel.reach_back()):
            wanted, last = wanted + added, last + added
        self._held = None if wanted > last else max(0, wanted)


def _keys(seconds: float) -> list[str]:
    """The keys that were pressed, by name; none when there were none in that time."""
    ready = select.select([sys.stdin], [], [], seconds)[0]
    text = os.read(sys.stdin.fileno(), 64).decode(errors="replace") if ready else ""
    return [_SPECIAL.get(special, key) for key, special in _KEY.findall(text)]
