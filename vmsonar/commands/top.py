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
#: The letter that stands for an arrow, a page key, End or F10, by the end of its sequence; others mean nothing.
_SPECIAL = {
    "A": "k",
    "B": "j",
    "C": "t",
    "D": "T",
    "5~": "<",
    "6~": ">",
    "F": "e",
    "4~": "e",
    "8~": "e",
    "21~": "q",
}
_KEY = re.compile(r"\x1b[\[O](?:([0-9]+)(?:;[0-9;]*)?)?([~A-Za-z])|(.)", re.DOTALL)
#: A key whose end is still to come.
_BEGUN = re.compile(r"\x1b(?:[\[O][0-9;]*)?$")
_ORDERS = {"P": "cores", "M": "memory", "I": "io", "G": "gpu"}
#: How many samples each key steps over.
_STEPS = {"T": -1, "t": 1, "[": -60, "]": 60}


def top_command(
    path: Annotated[Path | None, argument("[PATH]", "An archive or bundle; else the recorder's.")] = None,
    tz: Annotated[str, option("ZONE", "Time zone, such as Europe/Berlin.")] = "UTC",
) -> int:
    """Shows who uses the machine, live, and steps back in time through what was recorded.

    Where no recorder runs, one is started for as long as you look; what it recorded is removed afterwards.
    Keys: q or F10 quit; P, M, I, G sort by cores, memory, I/O, GPU; p processes; arrows up and down (or j and k)
    scroll; left and right (or T and t) step by a sample, [ and ] by sixty; space holds the time or goes back to now,
    End goes back to now; ? or h lists the keys.

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

        self._root, self._reel = root, Reel(root)
        self._screen = TopScreen(zone)
        self._programs = load_programs()
        #: The sample that is shown, by its number in the archive; None follows the newest.
        self._held: int | None = None
        self._begun = ""

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
                    keys = self._keys(_LOOK)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
            self._reel.close()

    def _show(self) -> None:
        from vmsonar_inspect.show.terminal.top import Instant

        self._reel.refresh()
        if not (held := len(self._reel)):
            return
        newest, shown = held - 1, self._screen.instant
        number = newest if self._held is None else min(newest, self._reel.number(self._held))
        self._screen.told = f"{newest - number} back" if self._held is not None else self._newest()
        now, *before = [self._reel.seq(each) for each in range(number, max(-1, number - 2), -1)]
        if (shown is None or shown.now.seq != now) and (found := self._reel.sample(now)):
            earlier = self._reel.sample(before[0]) if before else None
            self._screen.instant = Instant(found[1], self._programs, found[0], earlier and earlier[0])

    def _newest(self) -> str:
        return "end of the record" if holder(self._root) is None else "live"

    def _obey(self, key: str) -> None:
        screen, page = self._screen, max(1, shutil.get_terminal_size().lines - 8)
        scroll = {"k": -1, "j": 1, "<": -page, ">": page}
        if key in _ORDERS:
            screen.order, screen.first = _ORDERS[key], 0
        elif key == "p":
            screen.by_process, screen.first = not screen.by_process, 0
        elif key in ("?", "h"):
            screen.has_help = not screen.has_help
        elif key in scroll:
            screen.first = max(0, screen.first + scroll[key])
        elif key in _STEPS:
            self._step(_STEPS[key])
        elif key in (" ", "e"):
            self._step(0 if self._held is None and key == " " else len(self._reel))

    def _step(self, by: int) -> None:
        if (last := len(self._reel) - 1) < 0:
            return
        wanted = (last if self._held is None else self._reel.number(self._held)) + by
        while wanted < 1 and (added := self._reel.reach_back()):
            wanted, last = wanted + added, last + added
        self._held = None if wanted > last else self._reel.seq(max(0, wanted))

    def _keys(self, seconds: float) -> list[str]:
        """The keys that were pressed, by name; none when there were none in that time."""
        ready = select.select([sys.stdin], [], [], seconds)[0]
        text = self._begun + (os.read(sys.stdin.fileno(), 4096).decode(errors="replace") if ready else "")
        begun = _BEGUN.search(text) if ready else None
        self._begun = begun[0] if begun else ""
        whole = text.removesuffix(self._begun)
        return [
            key or _SPECIAL.get(f"{number}~" if end == "~" else end, "")
            for number, end, key in _KEY.findall(whole)
        ]
