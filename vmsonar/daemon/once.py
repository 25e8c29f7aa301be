"""One sample, for standard output or for an archive that cron fills."""

from pathlib import Path
from uuid import uuid4

import msgspec
from vmsonar_archive.format.layout import SYSINFO
from vmsonar_archive.format.lines import sample_line
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Stamp, SysInfo

from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.registry import make_collectors
from vmsonar.config.schema import Config
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Notifier, Watchdog
from vmsonar.daemon.options import DaemonOptions
from vmsonar.daemon.sampler import Sampler
from vmsonar.daemon.session import Session, Surroundings
from vmsonar.daemon.sysinfo import gather
from vmsonar.host.clock import Clock
from vmsonar.host.identity import boot_id, node_identity

_PATIENCE = 2.0


class Appended(msgspec.Struct, kw_only=True):
    """The answer of `vmsonar sample --archive DIR --json`; fields may be added, never removed."""

    archive: str
    archive_id: str
    #: Number of the last record in the archive.
    seq: int
    journal_head: str
    samples_lost: int


def settle(sampler: Sampler) -> None:
    """Gives collectors that ask others, such as a container engine, the time to be answered."""
    for collector in sampler.collectors:
        collector.settle(_PATIENCE)


def one_line(config: Config) -> bytes:
    """One sample as a line of JSON."""
    clock, boot = Clock(), boot_id(config.host)
    setup = Setup(config, clock=clock, machine_id=node_identity(config.host).machine_id)
    sampler = Sampler(make_collectors(setup), config.interval, clock, Log("error"))
    settle(sampler)
    tick = _first_tick(clock, boot)
    rows = sampler.sample(tick)
    sampler.close()
    stamp = Stamp(time=tick.time, seq=0, run=uuid4().hex, boot=boot, boottime=tick.boottime)
    return sample_line(stamp, rows.by_kind)


def describe_machine(config: Config) -> SysInfo:
    """The sysinfo record; collectors that may block look once before, within their time limits."""
    clock = Clock()
    collectors = make_collectors(Setup(config, machine_id=node_identity(config.host).machine_id))
    sampler = Sampler(
        [one for one in collectors if one.time_limit is not None], config.interval, clock, Log("error")
    )
    sampler.sample(_first_tick(clock, boot_id(config.host)))
    info = gather(config.host, config, collectors, clock)
    sampler.close()
    for collector in collectors:
        if collector.time_limit is None:
            collector.close()
    return info


def _first_tick(clock: Clock, boot: str) -> Tick:
    return Tick(time=clock.now(), boottime=clock.boottime_ns(), boot=boot, fresh=True)


def append_one(config: Config, archive: Path) -> Appended:
    """Appends one sample, and once a day what the machine is."""
    clock = Clock()
    around = Surroundings(clock, Log("error"), Watchdog(Notifier({}), clock, None))
    session = Session.begin(config, DaemonOptions(archive=archive), node_identity(config.host), around)
    writer = session.writer
    settle(session.sampler)
    session.record()
    with open_archive(writer.root) as recorded:
        described = {segment.day for segment in recorded.segments(SYSINFO)}
    if clock.now().date() not in described:
        session.describe(gather(config.host, config, session.sampler.collectors, clock))
    writer.tidy()
    session.close()
    return Appended(
        archive=str(writer.root),
        archive_id=writer.identity.archive,
        seq=writer.last_seq,
        journal_head=writer.head,
        samples_lost=writer.samples_lost,
    )
