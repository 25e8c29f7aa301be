"""The loop of the daemon: wait for a tick, take a sample, look what has changed, until told to stop."""

import gc
import resource
from collections.abc import Sequence

from vmsonar_archive.errors import Exit, VmsonarError
from vmsonar_archive.records import EventRow

from vmsonar import __version__
from vmsonar.clock import Clock
from vmsonar.collectors.registry import COLLECTORS, Entry
from vmsonar.config import Config
from vmsonar.drift import ClockWatch
from vmsonar.identity import Change, IdentityWatch
from vmsonar.log import Log
from vmsonar.notice_file import NoticeWatch
from vmsonar.notify import Notifier, Watchdog, watchdog_seconds
from vmsonar.places import archive_to_write, find_config
from vmsonar.session import Options, Session, Surroundings, budget_of
from vmsonar.signals import Signals
from vmsonar.sysinfo import gather


def load(options: Options) -> Config:
    """The configuration in force; YAML is only imported where there is a file."""
    path = find_config(options.config)
    if path is None:
        return options.over(Config())
    from vmsonar.config_file import read_config

    return options.over(read_config(path))


class Daemon:
    """The loop: wait for a tick, take a sample, look what has changed."""

    def __init__(self, options: Options, entries: Sequence[Entry] = COLLECTORS) -> None:
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
        self._session = Session.begin(config, options, self._identity.node, around)
        self._clocks = ClockWatch(self._clock)
        self._notices = NoticeWatch(config.host.run)
        self._end = (
            None if options.duration is None else self._clock.monotonic_ns() + int(options.duration * 1e9)
        )
        self._due = 0
        self._last_taken = False
        self._described = ""

    def run(self) -> int:
        """Samples until told to stop."""
        self._record([EventRow(event_type="daemon_start", detail=f"vmsonar {__version__}")])
        self._notifier.ready()
        self._log.info(f"recording into {self._session.root} every {self._session.config.interval:g} s")
        self._describe()
        self._say_what_is_hidden()
        gc.freeze()  # what lives by now lives on; the collector need not look at it again
        while not self._stopping():
            self._next()
        return self._finish()

    def _next(self) -> None:
        """Waits for the next tick, unless a signal comes first."""
        wait = self._due - self._clock.monotonic_ns()
        if self._end is not None:
            wait = min(wait, self._end - self._clock.monotonic_ns())
        self._signals.wait(wait)
        if self._signals.reload:
            self._reload()
        late = self._clock.monotonic_ns() - self._due
        if late >= 0 and not self._stopping():
            self._tick(late)

    def _tick(self, late: int) -> None:
        events = [*self._clocks.events(), *self._notices.events()]
        change = self._identity.change()
        if change is not None:
            events.append(self._follow(change))
        self._record(events, late)
        news = any(collector.has_news() for collector in self._session.recorder.sampler.collectors)
        if news or change is not None or self._described != f"{self._clock.now():%F}":
            self._describe()

    def _record(self, events: Sequence[EventRow] = (), late: int = 0) -> None:
        self._session.recorder.record(events, late, lambda: self._signals.stop, self._farewell)
        self._due = self._clock.monotonic_ns() + self._session.schedule.wait_from(self._clock.wall_ns())
        samples, lost = self._session.recorder.samples, self._session.writer.samples_lost
        if samples % 10 == 1:
            self._notifier.status(f"{samples} samples, {lost} lost, into {self._session.root}")

    def _farewell(self) -> list[EventRow]:
        """The sample during which we were told to stop is the last one."""
        if not self._signals.stop or self._last_taken:
            return []
        self._last_taken = True
        return [EventRow(event_type="daemon_stop")]

    def _stopping(self) -> bool:
        ended = self._end is not None and self._clock.monotonic_ns() >= self._end
        self._signals.stop = self._signals.stop or ended
        return self._signals.stop

    def _finish(self) -> int:
        self._notifier.stopping()
        if not self._last_taken:
            self._record(self._clocks.events())
        if not self._session.close():
            self._log.warning("the disk was too slow to seal; the next start will do it")
        self._watchdog.close()
        self._notifier.close()
        lost = self._session.writer.samples_lost
        self._log.info(f"stopped after {self._session.recorder.samples} samples, {lost} of them lost")
        return Exit.OK

    def _describe(self) -> None:
        session = self._session
        info = gather(session.config.host, session.config, session.recorder.sampler.collectors, self._clock)
        session.recorder.describe(info)
        self._described = f"{info.time:%F}"

    def _say_what_is_hidden(self) -> None:
        hidden = [
            f"{one.collector}: {one.item}"
            for collector in self._session.recorder.sampler.collectors
            for one in collector.capabilities()
            if not one.available and one.remedy is not None
        ]
        if hidden:
            self._log.warning(f"cannot see here: {'; '.join(hidden)} (vmsonar doctor tells why)")

    def _follow(self, change: Change) -> EventRow:
        """Goes on under the new name; a machine that is another one begins an archive of its own."""
        self._log.warning(f"this machine has changed: {change.detail}")
        if self._session.writer.identity.is_of(change.after):
            self._session = self._session.renamed(change.after)
        else:
            self._session.close()
            self._session = self._begin(self._session.config)
        return EventRow(event_type="identity_change", detail=change.detail)

    def _reload(self) -> None:
        self._signals.reload = False
        self._notifier.reloading(self._clock.monotonic_ns())
        try:
            self._apply(load(self._options))
        except (VmsonarError, OSError) as error:
            self._log.error(f"keeping the old configuration: {error}")
        self._notifier.ready()

    def _apply(self, config: Config) -> None:
        old = self._session
        if config == old.config:
            self._log.info("the configuration has not changed")
            return
        root = archive_to_write(self._options.archive, config.archive)
        if root == old.root and budget_of(config) == budget_of(old.config):
            self._session = old.with_config(config)
        elif root == old.root:
            self._reopen(config)
        else:
            self._session = self._begin(config)
            old.close()
        self._log.level = config.log
        self._log.info("the configuration was read again")
        self._record([EventRow(event_type="config_reload")])
        self._describe()

    def _begin(self, config: Config) -> Session:
        return Session.begin(config, self._options, self._identity.node, self._session.around)

    def _reopen(self, config: Config) -> None:
        """Opens the same archive under other limits, or again under the old ones."""
        old = self._session
        old.close()
        try:
            self._session = self._begin(config)
        except (VmsonarError, OSError):
            self._session = self._begin(old.config)
            raise


def raise_descriptor_limit() -> None:
    """Kept descriptors are what makes sampling cheap: takes as many as the hard limit grants."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(options: Options, entries: Sequence[Entry] = COLLECTORS) -> int:
    """Runs a daemon until it is told to stop."""
    raise_descriptor_limit()
    return Daemon(options, entries).run()
