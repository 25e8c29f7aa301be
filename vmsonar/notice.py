"""Watches for the notice that this VM is about to be taken away, and tears down in time.

`python -m vmsonar.notice` does nothing unless the configuration says `save.notice: aws`, `gcp` or `azure`.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from vmsonar_archive.errors import Exit, VmsonarError

from vmsonar.config_file import load_config
from vmsonar.lifecycle.clouds import ADDRESS, CLOUDS, Metadata, Notice
from vmsonar.log import Log
from vmsonar.notice_file import NOTICE_FILE, NoticeNote
from vmsonar.signals import Signals

_POLL_SECONDS = 5.0
#: What the shortest notice, 30 s, leaves when it has been seen.
_SHORT, _LONGEST, _MARGIN = 22.0, 110.0, 4.0

#: Tears down within so many seconds; returns the exit code.
TearDown = Callable[[float], int]


class Watcher:
    """Asks one cloud every few seconds; each notice is acted upon until that has worked once."""

    def __init__(self, cloud: str, tear_down: TearDown, log: Log, run: Path, service: Metadata) -> None:
        self._ask = CLOUDS[cloud]
        self._service = service
        self._tear_down = tear_down
        self._log = log
        self._run = run
        self._done: set[str] = set()
        self._noted: set[str] = set()
        self._trouble = ""

    def look(self) -> Notice | None:
        """Asks once and acts on what is new."""
        try:
            notice = self._ask(self._service)
        except OSError as error:
            self._tell(f"cannot ask the metadata service: {error.strerror or error}")
            return None
        self._tell("")
        if notice is not None and notice.key not in self._done:
            self._act(notice)
        return notice

    def _act(self, notice: Notice) -> None:
        if notice.key not in self._noted:
            self._noted.add(notice.key)
            self._log.warning(f"this VM is about to be taken away ({notice.detail}): tearing down")
            self._note(notice)
        code = self._tear_down(seconds_left(notice, datetime.now(UTC)))
        if code == Exit.OK:
            self._done.add(notice.key)
            self._log.info("everything is safe")
        else:
            self._log.error(f"tearing down ended with exit code {code}: trying again")

    def _note(self, notice: Notice) -> None:
        """For the recorder, which writes it into its next sample."""
        note = NoticeNote(time=datetime.now(UTC), detail=notice.detail)
        with suppress(OSError):
            (self._run / NOTICE_FILE).write_bytes(msgspec.json.encode(note) + b"\n")

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self._log.warning(f"{trouble}; trying again every {_POLL_SECONDS:g} s")
        self._trouble = trouble


def seconds_left(notice: Notice, now: datetime) -> float:
    """How long tearing down may take."""
    if notice.at is None:
        return _SHORT
    return min(_LONGEST, max(_SHORT / 2, (notice.at - now).total_seconds() - _MARGIN))


def tear_down_with(config: Path | None) -> TearDown:
    """In a process of its own, with a time limit of its own and one for it."""

    def tear_down(seconds: float) -> int:
        command = [sys.executable, "-I", "-m", "vmsonar", "teardown", "--limit", f"{seconds:.0f}s"]
        if config is not None:
            command += ["--config", str(config)]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, check=False, timeout=seconds + 5
            ).returncode
        except subprocess.TimeoutExpired:
            return Exit.CANNOT

    return tear_down


def watch(
    config: Path | None, signals: Signals, address: tuple[str, int] = ADDRESS, run: Path = Path("/run")
) -> int:
    """Until told to stop."""
    settings = load_config(config)
    if settings.save.notice == "none":
        print("vmsonar notice: save.notice is none: there is nothing to watch", file=sys.stderr)
        return Exit.OK
    log = Log(settings.log)
    watcher = Watcher(settings.save.notice, tear_down_with(config), log, run, Metadata(address))
    while not signals.stop:
        watcher.look()
        signals.wait(int(_POLL_SECONDS * 1e9))
    return Exit.OK


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="vmsonar.notice", description=__doc__)
    parser.add_argument("--config", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    signals = Signals()
    signals.install()
    try:
        return watch(options.config, signals)
    except VmsonarError as error:
        print(f"vmsonar notice: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
