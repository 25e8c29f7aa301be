"""`python -m vmsonar.daemon --command ARCHIVE INTERVAL DESCRIPTOR`: records one command, for `vmsonar run`.

Packets over a SOCK_SEQPACKET socket. From here: `ready`, or `failed` and why; `go`, `collected`, `done`.
To here: `command` with the pid and the arguments, which begins when we say `go`, or `running` if it did so already;
`ended` while it is a zombie, so that its own figures can still be read; then its status and totals. Without them we go
on until the command has ended.
"""

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec
from vmsonar_archive.records import CommandRunRow, EventRow
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.files import raise_descriptor_limit

from vmsonar import __version__
from vmsonar.collectors.base import Descent
from vmsonar.collectors.process.command import arguments, full, policy
from vmsonar.config.quantities import ByteSize, Interval
from vmsonar.config.schema import BudgetSection, Config, interval
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Notifier, Watchdog
from vmsonar.daemon.options import DaemonOptions, load
from vmsonar.daemon.own_group import OwnGroup, limits_of
from vmsonar.daemon.session import Session, Surroundings
from vmsonar.daemon.sysinfo import gather
from vmsonar.host.clock import Clock
from vmsonar.host.identity import node_identity
from vmsonar.host.proc_pid import START, read_stat

#: The longest packet.
PACKET = 1 << 16
# Nanoseconds: the first pauses, and how much of what has passed a pause may take until it is the interval.
_FIRST_PAUSE = 50 * 10**6
_SHORTEST_PAUSE = 100 * 10**6
_GROWTH = 4
# A pause that is long enough to describe the machine in.
_UNHURRIED = 200 * 10**6
# Seconds that the front has for its answer.
_PATIENCE = 10.0


def settings(archive: Path, every: Interval) -> Config:
    """The site's configuration, for one command: containers are not followed, and any small disk will do."""
    config = load(DaemonOptions(archive=archive, interval=every))
    return msgspec.structs.replace(
        config,
        collectors=msgspec.structs.replace(config.collectors, container="none", process="auto", job="auto"),
        budget=BudgetSection(max_bytes=config.budget.max_bytes, min_free=ByteSize(16 * 2**20)),
    )


class CommandRecorder:
    """Samples the machine and the descendants of one command, quickly at first."""

    def __init__(self, channel: socket.socket, archive: Path, every: Interval) -> None:
        self._channel = channel
        self._clock = Clock()
        self._config = settings(archive, every)
        self._descent = Descent()
        around = Surroundings(self._clock, Log("error"), Watchdog(Notifier({}), self._clock, None))
        around.descent = self._descent
        node = node_identity(self._config.host)
        self._session = Session.begin(self._config, DaemonOptions(archive=archive), node, around)
        self._row = CommandRunRow(pid=0)
        self._program: str | None = None
        self._group: OwnGroup | None = None
        self._began = 0
        self._is_described = False

    def run(self) -> None:
        """Records until the command has ended, or the front has gone without starting one."""
        try:
            self._session.record([EventRow(event_type="daemon_start", detail=f"vmsonar {__version__}")])
            self._channel.send(b"ready")
            gc.freeze()  # what is loaded stays: looking through it would cost 10 ms
            gc.enable()
            if self._begin(self._channel.recv(PACKET)):
                self._follow()
        finally:
            if self._group is not None:
                self._group.close()
            if not self._is_described:
                self._describe()
            self._session.close()
        lost = self._session.writer.samples_lost
        # Only now: the front may be all that keeps a container alive, and a script may copy the folder next.
        with suppress(OSError):
            self._channel.send(f"done {lost}".encode())

    def _begin(self, packet: bytes) -> bool:
        """Learns which process the command is; the front lets it begin when we are ready."""
        word, _, rest = packet.partition(b" ")
        if not word:
            return False
        number, _, line = rest.partition(b" ")
        pid = int(number)
        if word == b"command":  # one that runs already may have children that no group would count
            self._group = OwnGroup.make(self._config.host, pid)
        self._descent.group = None if self._group is None else self._group.path
        self._descent.begin(pid, self._config.host.proc)
        # What holds for the command holds for us, who share its parent; it may have ended by now, and be in no group.
        cpus, limits = len(os.sched_getaffinity(0)), limits_of(self._config.host, os.getpid())
        began, self._began = self._clock.now(), self._clock.boottime_ns()
        self._channel.send(b"go")
        stat = read_stat(self._config.host.proc, pid)
        told = full if self._config.command_line == "program" else policy(self._config.command_line)
        words = arguments(line)
        self._program = os.path.basename(words[0]) if words else None
        self._row = CommandRunRow(
            pid=pid,
            start_ticks=None if stat is None else int(stat[START]),
            command=told(words),
            started=began,
            cpus_available=cpus,
            **limits,
        )
        return True

    def _follow(self) -> None:
        news = [self._row]
        waiting = select.poll()
        waiting.register(self._channel, select.POLLIN)
        due = self._began + _FIRST_PAUSE
        while True:
            left = due - self._clock.boottime_ns()
            for descriptor, _ in waiting.poll(max(0, -(-left // 10**6))):
                if descriptor == self._channel.fileno() and not self._channel.recv(PACKET, socket.MSG_PEEK):
                    # The front was killed. The command goes on, and so do we.
                    waiting.unregister(self._channel)
                    with suppress(OSError):  # unless it has ended too
                        waiting.register(os.pidfd_open(self._row.pid), select.POLLIN)
                        continue
                self._end()
                return
            late = self._clock.boottime_ns() - due
            if late >= 0:
                self._session.record(news, late)
                news, pause = [], self._pause()
                due = self._clock.boottime_ns() + pause
                if pause > _UNHURRIED and not self._is_described:
                    self._describe()

    def _pause(self) -> int:
        """Short at first, so that a command of two seconds has a record; then the interval."""
        passed = self._clock.boottime_ns() - self._began
        return min(round(self._config.interval * 1e9), max(_SHORTEST_PAUSE, passed // _GROWTH))

    def _describe(self) -> None:
        self._is_described = True
        with suppress(OSError, ValueError):
            collectors = self._session.sampler.collectors
            self._session.describe(gather(self._config.host, self._config, collectors, self._clock))

    def _end(self) -> None:
        """The last sample, with the end of the command."""
        with suppress(OSError):
            self._channel.recv(PACKET, socket.MSG_DONTWAIT)
        self._session.record(last_events=self._told_end)

    def _told_end(self) -> list[EventRow | CommandRunRow]:
        """Everything has been read: the front may wait for the command, and tells what that brings."""
        ended = self._clock.boottime_ns()
        row = msgspec.structs.replace(self._row, elapsed=ended - self._began, totals_source="none")
        with suppress(OSError, ValueError):
            self._channel.settimeout(_PATIENCE)
            self._channel.send(b"collected")
            told = msgspec.json.decode(self._channel.recv(PACKET))
            ended = told.pop("ended")
            row = msgspec.structs.replace(row, totals_source="wait4", **told)
        if row.started is not None:
            row.ended = row.started + timedelta(microseconds=(ended - self._began) // 1000)
        if self._group is not None:
            row = msgspec.structs.replace(row, totals_source="cgroup", **self._group.totals())
        row.left_behind = len(self._descent.members - {row.pid})
        is_told = row.exit_code is not None or row.exit_signal is not None
        return [row, self._exit(row)] if is_told else [row]

    def _exit(self, row: CommandRunRow) -> EventRow:
        return EventRow(
            event_type="exit",
            subject="run",
            happened=row.ended,
            pid=row.pid,
            pgid=self._descent.shared[0] or None,
            start_ticks=row.start_ticks,
            program=self._program,
            exit_code=row.exit_code,
            exit_signal=row.exit_signal,
            core_dumped=row.core_dumped,
            exit_source="run",
            runtime=row.elapsed,
            cpu_time=None if row.user_time is None else row.user_time + (row.system_time or 0),
        )


def main(words: Sequence[str]) -> int:
    """Records, or says why that is not possible."""
    channel = socket.socket(fileno=int(words[2]))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    raise_descriptor_limit()
    try:
        CommandRecorder(channel, Path(words[0]), interval(words[1])).run()
    except (VmsonarError, OSError, ValueError) as error:
        with suppress(OSError):
            channel.send(f"failed {error}".encode()[:PACKET])
        return 3
    return 0
