"""One session of recording: the archive, collectors and schedule of one configuration and one machine identity."""

import errno
from dataclasses import dataclass
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.rights import write_as_owner
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.losses import reason_of
from vmsonar_archive.write.writer import ArchiveWriter

from vmsonar.collectors.base import setup_for
from vmsonar.collectors.registry import make_collectors
from vmsonar.config.schema import Config
from vmsonar.daemon.options import DaemonOptions
from vmsonar.daemon.recorder import Recorder, Sampler, Surroundings
from vmsonar.host.clock import Schedule
from vmsonar.host.identity import boot_id
from vmsonar.host.roots import archive_to_write


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


_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _open(root: Path, config: Config, node: NodeIdentity, around: Surroundings) -> ArchiveWriter:
    try:
        return ArchiveWriter.open(root, node, budget_of(config), now=around.clock.now)
    except OSError as error:
        said = f"cannot record into {root}: {error.strerror or error}"
        if error.errno in _MAY_PASS:
            raise DiskTrouble(reason_of(error), said) from None
        raise VmsonarError(f"{said}; choose another folder with --archive") from None


@dataclass(slots=True)
class Session:
    """An archive that is being written, by collectors that are set up for it."""

    config: Config
    node: NodeIdentity
    writer: ArchiveWriter
    recorder: Recorder
    schedule: Schedule
    around: Surroundings

    @classmethod
    def begin(
        cls, config: Config, options: DaemonOptions, node: NodeIdentity, around: Surroundings
    ) -> "Session":
        """Opens the archive and makes the collectors."""
        root = archive_to_write(options.archive, config.archive)
        if (owner := write_as_owner(root)) is not None:
            around.log.warning(f"working as {owner}, who owns {root}: what only root can see is not recorded")
        writer = _open(root, config, node, around)
        for finding in writer.misfits():
            around.log.error(f"{root}/{finding.path} {finding.detail}")
        try:
            return cls.on(writer, config, node, around)
        except BaseException:
            writer.close()
            raise

    @classmethod
    def on(cls, writer: ArchiveWriter, config: Config, node: NodeIdentity, around: Surroundings) -> "Session":
        """Makes the collectors for an archive that is open."""
        setup = setup_for(
            config, clock=around.clock, ids=writer.ids, machine_id=node.machine_id, archive=writer.root
        )
        collectors = make_collectors(setup, tuple(around.entries))
        sampler = Sampler(collectors, config.interval, around.clock, around.log)
        recorder = Recorder(sampler, writer, boot_id(config.host), around)
        schedule = Schedule(round(config.interval * 1e9), node.machine_id)
        return cls(config, node, writer, recorder, schedule, around)

    def with_config(self, config: Config) -> "Session":
        """The same archive under another configuration; this session is as it was if that raises."""
        other = Session.on(self.writer, config, self.node, self.around)
        try:
            self.writer.set_budget(budget_of(config))
        except BaseException:
            other.recorder.sampler.close()
            raise
        return other

    def close(self) -> bool:
        """Seals and lets go; False when the disk was too slow to wait for."""
        # the archive first: a helper process that takes its time to end must not keep it from being sealed
        finished = self.writer.close()
        self.recorder.sampler.close()
        return finished
