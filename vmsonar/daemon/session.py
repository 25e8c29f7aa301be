"""One session of recording: samples of one machine identity and configuration, appended to one archive."""

import errno
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.records import CommandRunRow, CostRow, EventRow, GapRow, SysInfo
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.rights import write_as_owner
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.losses import AppendFailed, reason_of
from vmsonar_archive.write.writer import ArchiveWriter

from vmsonar.collectors.base import Descent, Setup, Tick
from vmsonar.collectors.registry import COLLECTORS, Entry, make_collectors
from vmsonar.config.schema import Config
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Watchdog
from vmsonar.daemon.options import DaemonOptions
from vmsonar.daemon.sampler import Sampler, no_hurry
from vmsonar.host.clock import Clock, Schedule
from vmsonar.host.identity import boot_id
from vmsonar.host.proc_pid import PPID, read_stat
from vmsonar.host.roots import archive_to_write

# Our own children, whatever root the collectors look below.
_PROC = Path("/proc")
# What a disk says that may have room, or be well, again later.
_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


@dataclass(slots=True)
class Surroundings:
    """What outlives a session."""

    clock: Clock
    log: Log
    watchdog: Watchdog
    entries: Sequence[Entry] = COLLECTORS
    #: The one command whose processes are recorded, where it is not all of them.
    descent: Descent | None = None


def budget_of(config: Config) -> Budget:
    """The archive's limits in its own terms."""
    section = config.budget
    return Budget(
        max_bytes=None if section.max_bytes is None else int(section.max_bytes),
        max_days=section.max_days,
        min_free=int(section.min_free),
    )


class DiskTrouble(VmsonarError):
    """The archive cannot be opened because the disk is full or fails, which may pass."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def child_cpu_time(running: Iterable[int]) -> int:
    """Nanoseconds of CPU; a child that ends moves from one part of the sum to the other."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((usage.ru_utime + usage.ru_stime) * 1e9) + sum(map(_running_time, running))


def _running_time(pid: int) -> int:
    """CPU time of our own child; a companion started by a service manager is its own unit's cost."""
    try:
        fields = read_stat(_PROC, pid)
        if fields is None or int(fields[PPID]) != os.getpid():
            return 0
        return int((_PROC / str(pid) / "schedstat").read_bytes().split(None, 1)[0])
    except (OSError, ValueError):
        return 0


class Session:
    """An archive that is being written, by collectors that are set up for it."""

    def __init__(
        self, writer: ArchiveWriter, config: Config, node: NodeIdentity, around: Surroundings
    ) -> None:
        """Makes the collectors for an archive that is open."""
        if not os.access(config.host.proc / "stat", os.R_OK):
            raise VmsonarError(
                f"procfs: {config.host.proc} holds no stat: name the root of a proc file system"
            )
        self.writer = writer
        self.config = config
        self.node = node
        self.around = around
        setup = Setup(
            config,
            clock=around.clock,
            ids=writer.ids,
            machine_id=node.machine_id,
            archive=writer.root,
            descent=around.descent,
        )
        collectors = make_collectors(setup, tuple(around.entries))
        self.sampler = Sampler(collectors, config.interval, around.clock, around.log)
        self.schedule = Schedule(round(config.interval * 1e9), node.machine_id)
        self.samples = 0
        self._boot = boot_id(config.host)
        self._trouble: str | None = None

    @classmethod
    def begin(
        cls, config: Config, options: DaemonOptions, node: NodeIdentity, around: Surroundings
    ) -> "Session":
        """Opens the archive and makes the collectors."""
        root = archive_to_write(options.archive, config.archive)
        if (owner := write_as_owner(root)) is not None:
            around.log.warning(f"working as {owner}, who owns {root}: what only root can see is not recorded")
        try:
            writer = ArchiveWriter(root, node, budget_of(config), now=around.clock.now)
        except OSError as error:
            said = f"cannot record into {root}: {error.strerror or error}"
            if error.errno in _MAY_PASS:
                raise DiskTrouble(reason_of(error), said) from None
            raise VmsonarError(f"{said}; choose another folder with --archive") from None
        for finding in writer.misfits():
            around.log.error(f"{root}/{finding.path} {finding.detail}")
        try:
            return cls(writer, config, node, around)
        except BaseException:
            writer.close()
            raise

    def with_config(self, config: Config) -> "Session":
        """The same archive under another configuration; this session is as it was if that raises."""
        other = Session(self.writer, config, self.node, self.around)
        try:
            self.writer.set_budget(budget_of(config))
        except BaseException:
            other.sampler.close()
            raise
        return other

    def close(self) -> bool:
        """Seals and lets go; False when the disk was too slow to wait for."""
        # the archive first: a helper process that takes its time to end must not keep it from being sealed
        finished = self.writer.close()
        self.sampler.close()
        return finished

    def record(
        self,
        events: Iterable[EventRow | CommandRunRow] = (),
        late: int = 0,
        hurry: Callable[[], bool] = no_hurry,
        last_events: Callable[[], Iterable[EventRow | CommandRunRow]] = tuple,
        gaps: Iterable[GapRow] = (),
        is_last: bool = False,
    ) -> bool:
        """Takes one sample; `last_events` is asked after collecting.

        False when it could not be written.
        """
        clock = self.around.clock
        began, now = clock.monotonic_ns(), clock.now()
        tick = Tick(
            time=now,
            boottime=clock.boottime_ns(),
            boot=self._boot,
            fresh=self.writer.begins_segment(now),
            is_last=is_last,
        )
        self.around.watchdog.collecting()
        rows = self.sampler.sample(tick, hurry)
        for event in (*events, *last_events()):
            rows.add("event" if isinstance(event, EventRow) else "command_run", event)
        for gap in gaps:
            rows.add("gap", gap)
        cost = CostRow(
            cpu_time=time.process_time_ns(),
            child_cpu_time=child_cpu_time(self.sampler.companions()),
            wall_time=clock.monotonic_ns() - began,
            late_time=late,
            bytes_written=self.writer.bytes_written,
            samples_lost=self.writer.samples_lost,
        )
        rows.add("cost", cost)
        self.around.watchdog.resting()
        written = self._write(lambda: self.writer.append(tick.time, tick.boot, tick.boottime, rows.by_kind))
        self.writer.maintain()
        self.samples += 1
        return written

    def describe(self, info: SysInfo) -> None:
        """Appends a sysinfo record."""
        self._write(lambda: self.writer.append_sysinfo(info))

    def _write(self, append: Callable[[], int]) -> bool:
        """Appends; a disk that fails is logged when it begins to and when it is well again."""
        before, self._trouble = self._trouble, None
        try:
            append()
        except AppendFailed as error:
            self._trouble = error.reason
            if error.reason != before:
                self.around.log.error(str(error))
            return False
        if before is not None:
            lost = self.writer.samples_lost
            self.around.log.warning(f"writing to {self.writer.root} again; {lost} samples were lost so far")
        return True
