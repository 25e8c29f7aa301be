"""The loop of the daemon: wait for a tick, take a sample, check what has changed, until it is stopped."""

import gc
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from vmsonar_archive.read.endings import boot_before
from vmsonar_archive.records import EventRow
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.system.files import raise_descriptor_limit
from vmsonar_archive.system.rights import refuse_to_become_another

from vmsonar import __version__
from vmsonar.collectors.base import capabilities_of
from vmsonar.collectors.registry import COLLECTORS, Entry
from vmsonar.config.schema import Config
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Notifier, Watchdog, watchdog_seconds
from vmsonar.daemon.options import DaemonOptions, load
from vmsonar.daemon.session import DiskTrouble, Session, Surroundings
from vmsonar.daemon.signals import Signals
from vmsonar.daemon.sysinfo import gather
from vmsonar.host.clock import Clock, ClockWatch, MissedTicks
from vmsonar.host.cloud import NoticeWatch
from vmsonar.host.identity import IdentityChange, IdentityWatch, boot_id
from vmsonar.host.roots import archive_to_write
from vmsonar.host.shutdown import STOP, stop_reason

T = TypeVar("T")

# A disk that refuses is tried again at every tick, but not more rarely than this.
_RETRY_SECONDS = 10.0


#: What a site may choose to add: doctor tells of it, not every start.
_OPTIONAL = frozenset({"exact accounts of processes that ended", "I/O of containers"})


class Daemon:
    """Waits for ticks, takes samples and follows changes of clock, configuration and identity."""

    def __init__(self, options: DaemonOptions, entries: Sequence[Entry] = COLLECTORS) -> None:
        self._options = options
        self._clock = Clock()
        self._notifier = Notifier()
        self._signals = Signals()
        self._signals.install()
        config = load(options)
        self._log = Log(config.log)
        self._watchdog = Watchdog(self._notifier, self._clock, watchdog_seconds())
        around = Surroundings(self._clock, self._log, self._watchdog, entries)
        self._identity = IdentityWatch(config.host)
        self._end = (
            None if options.duration is None else self._clock.monotonic_ns() + int(options.duration * 1e9)
        )
        self._session = self._begin_when_possible(config, around)
        self._clocks = ClockWatch(self._clock)
        self._notices = NoticeWatch(config.host.run)
        self._due = 0
        self._missed = MissedTicks()
        self._described = ""

    def run(self) -> int:
        """Samples until it is stopped."""
        start = EventRow(event_type="daemon_start", detail=f"vmsonar {__version__}")
        self._record([*self._boot_before(), start])
        self._notifier.ready()
        self._log.info(
            f"recording into {self._session.writer.root} every {self._session.config.interval:g} s"
        )
        self._describe()
        self._say_what_is_hidden()
        gc.freeze()  # what lives by now lives on; the collector need not look at it again
        while not self._stopping():
            self._next()
        return self._finish()

    def _next(self) -> None:
        """Waits for the next tick, unless a signal comes first."""
        self._wait(self._due - self._clock.monotonic_ns())
        if self._signals.reload:
            self._reload()
        late = self._clock.monotonic_ns() - self._due
        if late >= 0 and not self._stopping():
            self._tick(late)

    def _wait(self, nanoseconds: int) -> None:
        """Waits so long, unless the end of the recording or a signal comes first."""
        if self._end is not None:
            nanoseconds = min(nanoseconds, self._end - self._clock.monotonic_ns())
        self._signals.wait(nanoseconds)

    def _tick(self, late: int) -> None:
        events = [*self._clocks.events(), *self._notices.events()]
        change = self._identity.change()
        if change is not None:
            events.append(self._follow(change))
        self._record(events, late)
        news = any(collector.has_news() for collector in self._session.sampler.collectors)
        if news or change is not None or self._described != f"{self._clock.now():%F}":
            self._describe()

    def _record(self, events: Sequence[EventRow] = (), late: int = 0, is_last: bool = False) -> None:
        session = self._session
        skipped = late // session.schedule.interval
        self._missed.add(skipped, self._clock.now() - timedelta(microseconds=late // 1000))
        hurry, gaps = (lambda: self._signals.stop), self._missed.rows()
        if session.record(events, late, hurry, gaps=gaps, is_last=is_last):
            self._missed.told()
        due = self._clock.monotonic_ns() + session.schedule.wait_from(self._clock.wall_ns())
        if self._due:
            self._missed.add(session.schedule.between(self._due, due) - skipped, self._clock.now())
        self._due = due
        if session.samples % 10 == 1:
            self._notifier.status(f"{self._counted()}, into {session.writer.root}")

    def _counted(self) -> str:
        """How many samples there are, and how many there should have been."""
        samples, lost = self._session.samples, self._session.writer.samples_lost
        return f"{samples} samples, {lost} lost, {self._missed.total} missed"

    def _stop_reason(self) -> str | None:
        """Why it stops; only who was told to by SIGTERM need ask."""
        return stop_reason(self._session.config.host) if self._signals.terminated else STOP

    def _boot_before(self) -> list[EventRow]:
        """How the boot before this one ended, where the archive goes back that far."""
        end = boot_before(self._session.writer.root, boot_id(self._session.config.host))
        if end is None:
            return []
        return [EventRow(event_type="boot_end", happened=end.time, reason=end.how, detail=end.evidence)]

    def _stopping(self) -> bool:
        ended = self._end is not None and self._clock.monotonic_ns() >= self._end
        self._signals.stop = self._signals.stop or ended
        return self._signals.stop

    def _finish(self) -> int:
        self._notifier.stopping()
        farewell = EventRow(event_type="daemon_stop", reason=self._stop_reason())
        self._record([*self._clocks.events(), farewell], is_last=True)
        if not self._session.close():
            self._log.warning("the disk was too slow to seal; the next start will do it")
        self._watchdog.close()
        self._notifier.close()
        self._log.info(f"stopped after {self._counted()}")
        return Exit.OK

    def _describe(self) -> None:
        """Records what the machine is; where that fails, samples go on and the next day tries again."""
        session = self._session
        self._described = f"{self._clock.now():%F}"
        try:
            info = gather(session.config.host, session.config, session.sampler.collectors, self._clock)
        except Exception as error:
            self._log.error(f"cannot describe this machine: {type(error).__name__}: {error}")
        else:
            session.describe(info)

    def _say_what_is_hidden(self) -> None:
        hidden = [
            f"{one.collector}: {one.item}"
            for collector in self._session.sampler.collectors
            for one in capabilities_of(collector)
            if not one.available and one.remedy is not None and one.item not in _OPTIONAL
        ]
        if hidden:
            self._log.warning(f"cannot see here: {'; '.join(hidden)} (vmsonar doctor tells why)")

    def _follow(self, change: IdentityChange) -> EventRow:
        """Continues under the new name; another machine begins an archive of its own."""
        self._log.warning(f"this machine has changed: {change.detail}")
        if self._session.writer.identity.is_of(change.after):
            self._session.node = change.after
        else:
            self._session.close()
            self._session = self._begin_when_possible(self._session.config, self._session.around)
        return EventRow(event_type="identity_change", detail=change.detail)

    def _reload(self) -> None:
        self._notifier.reloading(self._clock.monotonic_ns())
        if self._reread(self._apply, False):
            self._record([EventRow(event_type="config_reload")])
            self._describe()
        self._notifier.ready()

    def _reread(self, use: Callable[[Config], T], otherwise: T) -> T:
        """Reads the configuration again and makes use of it; whatever goes wrong, the one in force still works."""
        self._signals.reload = False
        try:
            return use(load(self._options))
        except Exception as error:
            plain = isinstance(error, (VmsonarError, OSError))
            said = str(error) if plain else f"{type(error).__name__}: {error}"
            self._log.error(f"keeping the old configuration: {said}")
            return otherwise

    def _apply(self, config: Config) -> bool:
        """Applies another configuration, wholly or not at all; False when it is the same."""
        old = self._session
        if config == old.config:
            self._log.info("the configuration has not changed")
            return False
        root = archive_to_write(self._options.archive, config.archive)
        if root == old.writer.root:
            self._session = old.with_config(config)
            old.sampler.close()
        else:
            refuse_to_become_another(root)
            self._session = Session.begin(config, self._options, self._identity.node, old.around)
            old.close()
        self._log.level = config.log
        self._log.info("the configuration was read again")
        return True

    def _begin_when_possible(self, config: Config, around: Surroundings) -> Session:
        """Opens the archive; a full or failing disk is waited for, and what is missed meanwhile is counted."""
        began, since = self._clock.monotonic_ns(), self._clock.now()
        trouble: DiskTrouble | None = None
        while True:
            try:
                session = Session.begin(config, self._options, self._identity.node, around)
            except DiskTrouble as error:
                if self._stopping():
                    raise
                if trouble is None or trouble.reason != error.reason:
                    self._log.error(f"{error}; trying again until it works")
                    self._notifier.status(f"waiting: {error}")
                    self._notifier.ready()
                trouble = error
                self._wait(int(min(config.interval, _RETRY_SECONDS) * 1e9))
                if self._signals.reload:
                    config = self._reread(lambda new: new, config)
                continue
            if trouble is not None:
                elapsed = self._clock.monotonic_ns() - began
                lost = max(1, elapsed // session.schedule.interval)
                session.writer.add_losses(lost, since, trouble.reason)
                self._log.warning(f"recording now; {lost} samples were lost while the disk refused")
            return session


def run(options: DaemonOptions, entries: Sequence[Entry] = COLLECTORS) -> int:
    """Runs a daemon until a signal or its duration ends it."""
    raise_descriptor_limit()  # kept descriptors are what makes sampling cheap
    return Daemon(options, entries).run()
