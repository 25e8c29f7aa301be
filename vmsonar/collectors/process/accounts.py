"""The accounts of processes that ended, as the recorder gets them from the companion that reads taskstats."""

import re
import socket
from pathlib import Path

from vmsonar_archive.records import Capability
from vmsonar_archive.system.children import python

from vmsonar.collectors.base import Trouble, capability
from vmsonar.collectors.link import CompanionLink, is_readable
from vmsonar.collectors.process.wire import (
    Account,
    AccountRows,
    AnyMessage,
    Flush,
    Flushed,
    Listening,
    Lost,
    from_companion,
)
from vmsonar.collectors.protocol import to_line
from vmsonar.config.schema import Accounts as Settings
from vmsonar.host.clock import Clock
from vmsonar.host.files import read_text
from vmsonar.host.roots import Host

#: Where the companion listens, below /run.
ACCOUNTS_SOCKET = "vmsonar/accounts.sock"
_CAP_NET_ADMIN = 12
# A companion that says nothing for so long is not waited for again until it has answered; one that talks has longer.
_SILENCE, _LONGEST = 0.05, 0.25
# At the last sample, when a whole machine may go down at once: what is not told then is never known.
_LAST_SILENCE = 0.5
_ITEM = "exact accounts of processes that ended"
_REMEDY = "vmsonar install --accounts: a unit of its own with CAP_NET_ADMIN alone"


class Accounts(CompanionLink):
    """Asks the companion once per sample for all that ended; never raises, and waits half a second at most."""

    def __init__(self, host: Host, settings: Settings, clock: Clock) -> None:
        super().__init__(socket_path(host, settings), clock)
        self._host = host
        self._settings = settings
        self._asked = 0
        self._answered = 0
        self._is_behind = False
        #: Every end up to this moment was told, CLOCK_BOOTTIME; None before the first answer.
        self.covered: int | None = None
        #: The companion tells every end since this moment, CLOCK_BOOTTIME; None where there never was one.
        self.since: int | None = None
        self._troubles: list[Trouble] = []

    def take(self, is_last: bool = False) -> tuple[list[Account], bool]:
        """What ended since the last call, and whether some of that may be missing: without a companion, it is.

        Call it after the events of the lifeline were read: whatever is known to have ended by then has its row here.
        """
        rows: list[Account] = []
        self._troubles = []
        if self._settings.use == "none":
            return rows, True
        lost = self._read(rows)
        silence = _LAST_SILENCE if is_last else _SILENCE
        if self._is_in_step or is_last:
            lost |= self._flush(rows, silence)
        if self._connection is None:
            if self.since is not None or self.state == "companion":
                self._troubles.append(("accounts_companion", self.detail or "no companion runs any more"))
        elif not self._is_in_step:
            self._troubles.append(("accounts_silent", f"no answer within {silence * 1000:g} ms"))
        return rows, lost or not self._is_in_step

    @property
    def is_owing(self) -> bool:
        """Whether the companion has yet to tell of some that ended before it was asked."""
        return self._connection is not None and (self._is_behind or not self._is_in_step)

    def troubles(self) -> list[Trouble]:
        """Why the accounts of the last interval are not complete; nothing where there never was a companion."""
        return self._troubles

    def capabilities(self, collector: str) -> list[Capability]:
        """Whether accounts can be had here, and what would change that."""
        return [
            capability(
                collector,
                _ITEM,
                *_why_not(self._settings, socket_path(self._host, self._settings), self._is_able()),
            )
        ]

    def may_start(self) -> bool:
        self._is("absent", None)
        return self._settings.start == "auto" and self._is_able()

    def own_command(self, descriptor: int) -> list[str]:
        return python("-m", "vmsonar.companion.accounts", "--fd", str(descriptor))

    def _connect(self) -> None:
        super()._connect()
        self._answered = self._asked  # a new companion knows nothing of what the last one was asked

    @property
    def _is_in_step(self) -> bool:
        """Whether it has answered all that it was asked."""
        return self._connection is not None and self._answered == self._asked

    def _flush(self, rows: list[Account], silence: float) -> bool:
        """Asks for all there is and reads until the answer; returns whether something was lost."""
        self._asked += 1
        asked, lost = self._clock.boottime_ns(), False
        self._send(to_line(Flush(number=self._asked)))
        end = self._clock.monotonic_ns() + round(max(silence, _LONGEST) * 1e9)
        while self._connection is not None and self._answered < self._asked:
            left = min(silence, (end - self._clock.monotonic_ns()) / 1e9)
            if left <= 0 or not is_readable(self._connection, left):
                break
            lost |= self._read(rows)
        if self._is_in_step and not lost:
            self.covered = asked
        return lost

    def _send(self, line: bytes) -> None:
        if self._connection is not None:
            try:
                self._connection.send(line)
            except OSError as error:
                self._lose(f"the companion is gone: {error.strerror}")

    def _read(self, rows: list[Account]) -> bool:
        """Takes what was sent so far; returns whether something was lost."""
        lost = False
        for line in self.lines():
            message = from_companion(line)
            if message is not None:
                lost |= self._note(message, rows)
        return lost

    def _note(self, message: AnyMessage, rows: list[Account]) -> bool:
        if isinstance(message, AccountRows):
            rows += message.rows
        elif isinstance(message, Listening):
            self.since = message.since
            return self.covered is None or message.since > self.covered
        elif isinstance(message, Flushed):
            self._answered, self._is_behind = message.number, message.is_behind
            if message.is_behind:
                self._troubles.append(("accounts_late", "more processes ended than were followed so far"))
            return message.is_behind
        elif isinstance(message, Lost):
            self._troubles.append(("accounts_lost", message.detail))
            return True
        return False

    def _is_able(self) -> bool:
        """Whether we could do it ourselves (capabilities(7))."""
        status = read_text(self._host.proc / "self/status") or ""
        found = re.search(r"^CapEff:\t([0-9a-f]+)$", status, re.MULTILINE)
        return found is not None and bool(int(found[1], 16) >> _CAP_NET_ADMIN & 1)


def socket_path(host: Host, settings: Settings) -> Path:
    return Path(settings.socket) if settings.socket else host.run / ACCOUNTS_SOCKET


def _why_not(settings: Settings, path: Path, is_able: bool) -> tuple[()] | tuple[str, str]:
    """Why there are no accounts, and what would change that."""
    if settings.use == "none":
        return "switched off by accounts.use: none", "set accounts.use: auto"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            if is_able and settings.start == "auto":
                return ()
            return "no companion reads taskstats", _REMEDY
        except OSError as error:
            return (
                f"{path}: {error.strerror}",
                "ask as root or as the recorder's user; start vmsonar-accounts.service",
            )
    return ()
