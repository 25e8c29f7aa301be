"""Lists what can be collected here and what cannot, why, and what would change that."""

import os
import resource
from importlib.util import find_spec
from pathlib import Path

from vmsonar_archive.format.layout import ARCHIVE_FILE
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Capability
from vmsonar_archive.system.errors import VmsonarError, way_to_add
from vmsonar_archive.write.budget import free_bytes

from vmsonar.collectors.base import Setup, Tick, capabilities_of
from vmsonar.collectors.registry import COLLECTORS, Entry, make
from vmsonar.config.quantities import show_size
from vmsonar.config.schema import Config
from vmsonar.daemon.log import Log
from vmsonar.daemon.sampler import Sampler
from vmsonar.host.clock import Clock
from vmsonar.host.identity import boot_id, node_identity
from vmsonar.lifecycle.checks import examine_save

#: What an extra brings, by the module that shows that it is installed.
_EXTRAS = (
    ("docker", "docker", "names, images and labels of containers"),
    ("gpu", "pynvml", "NVIDIA GPUs"),
    ("parquet", "pyarrow", "Parquet files per day"),
    ("inspect", "duckdb", "SQL and reports on this machine"),
    ("kafka", "confluent_kafka", "forwarding to Kafka"),
    ("sign", "cryptography", "signed bundles"),
)
_DESCRIPTORS = 4096


def examine(config: Config, archive: Path) -> list[Capability]:
    """All capabilities, the environment first."""
    found = [_writable(archive), _space(archive, config), _descriptors(), *map(_extra, _EXTRAS)]
    found += _identity(archive)
    found += examine_save(config, archive, Clock().now())
    setup = Setup(config, machine_id=node_identity(config.host).machine_id)
    for entry in COLLECTORS:
        # one switch may stand for several collectors
        found += [one for one in _collector(entry, setup) if one not in found]
    return found


def can_record(found: list[Capability]) -> bool:
    """Whether anything at all could be written."""
    return all(one.available for one in found if one.collector == "archive")


def _collector(entry: Entry, setup: Setup) -> list[Capability]:
    if getattr(setup.config.collectors, entry.name, "auto") == "none":
        remedy = f"set collectors.{entry.name} to auto in the configuration"
        return [_lacking(entry.name, "everything", "switched off in the configuration", remedy)]
    if not entry.is_on(setup.config):
        return []
    try:
        collector = make(entry, setup)
    except Exception as error:
        return [_lacking(entry.name, "everything", f"{type(error).__name__}: {error}", None)]
    sampler = Sampler([collector], setup.config.interval, setup.clock, Log("error"))
    sampler.sample(_tick(setup))  # whatever fails, its capabilities tell what is missing
    found = capabilities_of(collector)
    sampler.close()
    return found


def _tick(setup: Setup) -> Tick:
    clock = Clock()
    return Tick(time=clock.now(), boottime=clock.boottime_ns(), boot=boot_id(setup.host), fresh=True)


def _lacking(collector: str, item: str, reason: str, remedy: str | None) -> Capability:
    return Capability(collector=collector, item=item, available=False, reason=reason, remedy=remedy)


def _existing(path: Path) -> Path:
    """The path, or its nearest existing parent."""
    return next((one for one in (path, *path.absolute().parents) if one.is_dir()), Path("/"))


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _writable(archive: Path) -> Capability:
    folder = _existing(archive)
    item = f"writing to {archive}"
    if _may_write(folder):
        return Capability(collector="archive", item=item, available=True)
    remedy = "choose another folder with --archive, or run as the user who owns this one"
    return _lacking("archive", item, f"{folder} is not writable for user {os.geteuid()}", remedy)


def _space(archive: Path, config: Config) -> Capability:
    free, wanted = free_bytes(_existing(archive)), config.budget.min_free
    item = f"{show_size(wanted)} that stay free on the disk (budget.min_free)"
    if free >= wanted:
        return Capability(collector="archive", item=item, available=True)
    return _lacking(
        "archive", item, f"{show_size(free)} are free", "free some space or lower budget.min_free"
    )


def _identity(archive: Path) -> list[Capability]:
    """Where the archive's identity differs from what its journal vouches for."""
    if not (archive / ARCHIVE_FILE).exists():
        return []
    item, remedy = "the identity of what was recorded here", "see vmsonar verify; put it back from a bundle"
    try:
        with open_archive(archive) as opened:
            found = opened.source.misfits(opened.ledger)
    except VmsonarError as error:
        return [_lacking("identity", item, str(error), remedy)]
    return [_lacking("identity", item, f"{one.path} {one.detail}", remedy) for one in found]


def _descriptors() -> Capability:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    item = "descriptors kept open for cheap sampling"
    if hard == resource.RLIM_INFINITY or hard >= _DESCRIPTORS:
        return Capability(collector="environment", item=item, available=True)
    remedy = f"LimitNOFILE={_DESCRIPTORS * 4} in a drop-in of vmsonar.service, or ulimit -Hn"
    return _lacking(
        "environment", item, f"the hard limit is {hard}: sampling is right but costs more", remedy
    )


def _extra(extra: tuple[str, str, str]) -> Capability:
    name, module, purpose = extra
    item = f"extra {name}: {purpose}"
    if find_spec(module) is not None:
        return Capability(collector="environment", item=item, available=True)
    return _lacking("environment", item, "not installed", way_to_add(name))
