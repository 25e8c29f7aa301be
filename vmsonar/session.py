"""What depends on the configuration and on who the machine is: the archive, the collectors, the schedule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from vmsonar_archive.budget import Budget
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.identity import NodeIdentity
from vmsonar_archive.writer import ArchiveWriter

from vmsonar.clock import Clock
from vmsonar.collectors.registry import COLLECTORS, Entry, make_collectors
from vmsonar.collectors.setup import setup_for
from vmsonar.config import Config
from vmsonar.identity import boot_id
from vmsonar.log import Log
from vmsonar.notify import Watchdog
from vmsonar.places import archive_to_write
from vmsonar.quantities import Interval
from vmsonar.recorder import Recorder
from vmsonar.sampler import Sampler
from vmsonar.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Options:
    """What was said on the command line; it counts more than the file, also after a reload."""

    archive: Path | None = None
    config: Path | None = None
    interval: Interval | None = None
    duration: float | None = None

    def over(self, config: Config) -> Config:
        """The configuration with what the command line says instead."""
        return config if self.interval is None else msgspec.structs.replace(config, interval=self.interval)


@dataclass(slots=True)
class Surroundings:
    """What outlives a session."""

    clock: Clock
    log: Log
    watchdog: Watchdog
    entries: Sequence[Entry] = COLLECTORS


def budget_of(config: Config) -> Budget:
    """The archive's limits in its own terms."""
    section = config.budget
    return Budget(
        max_bytes=None if section.max_bytes is None else int(section.max_bytes),
        max_days=section.max_days,
        min_free=int(section.min_free),
    )


def _open(root: Path, config: Config, node: NodeIdentity, around: Surroundings) -> ArchiveWriter:
    try:
        return ArchiveWriter.open(root, node, budget_of(config), now=around.clock.now)
    except OSError as error:
        said = f"cannot record into {root}: {error.strerror or error}"
        raise VmsonarError(f"{said}; choose another folder with --archive") from None


@dataclass(slots=True)
class Session:
    """An archive that is being written, by collectors that are set up for it."""

    config: Config
    root: Path
    node: NodeIdentity
    writer: ArchiveWriter
    recorder: Recorder
    schedule: Schedule
    around: Surroundings

    @classmethod
    def begin(cls, config: Config, options: Options, node: NodeIdentity, around: Surroundings) -> "Session":
        """Opens the archive and makes the collectors."""
        root = archive_to_write(options.archive, config.archive)
        return cls.on(_open(root, config, node, around), config, node, around)

    @classmethod
    def on(cls, writer: ArchiveWriter, config: Config, node: NodeIdentity, around: Surroundings) -> "Session":
        """Makes the collectors for an archive that is open."""
        setup = setup_for(
            config, clock=around.clock, ids=writer.ids, machine_id=node.machine_id, archive=writer.root
        )
        collectors = make_collectors(setup, tuple(around.entries))
        sampler = Sampler(collectors, config.interval, around.clock, around.log)
        boot = boot_id(config.host)
        recorder = Recorder(sampler, writer, boot, around.clock, around.log, around.watchdog)
        schedule = Schedule(round(config.interval * 1e9), node.machine_id)
        return cls(config, writer.root, node, writer, recorder, schedule, around)

    def with_config(self, config: Config) -> "Session":
        """The same archive under another configuration."""
        other = Session.on(self.writer, config, self.node, self.around)
        self.recorder.sampler.close()
        return other

    def renamed(self, node: NodeIdentity) -> "Session":
        """The same session on a machine that got another name."""
        return replace(self, node=node)

    def close(self) -> bool:
        """Seals and lets go; False when the disk was too slow to wait for."""
        # the archive first: a helper process that takes its time to end must not keep it from being sealed
        finished = self.writer.close()
        self.recorder.sampler.close()
        return finished
