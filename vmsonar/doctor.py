"""What vmsonar could collect here, what it cannot, why, and what would change that."""

import os
import resource
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from vmsonar_archive.budget import free_bytes
from vmsonar_archive.records import Capability

from vmsonar.clock import Clock
from vmsonar.collectors.base import Tick
from vmsonar.collectors.registry import COLLECTORS, Entry, make
from vmsonar.collectors.setup import Setup, setup_for
from vmsonar.config import Config
from vmsonar.identity import boot_id, node_identity
from vmsonar.lifecycle.checks import examine_save
from vmsonar.quantities import show_size

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
    """Everything, the environment first."""
    found = [_writable(archive), _space(archive, config), _descriptors(), *map(_extra, _EXTRAS)]
    found += examine_save(config, archive, Clock().now())
    setup = setup_for(config, machine_id=node_identity(config.host).machine_id)
    for entry in COLLECTORS:
        found += _collector(entry, setup)
    return found


def can_record(found: list[Capability]) -> bool:
    """Whether anything at all could be written."""
    return all(one.available for one in found if one.collector == "archive")


def _collector(entry: Entry, setup: Setup) -> list[Capability]:
    if getattr(setup.config.collectors, entry.name, "auto") == "none":
        remedy = f"set collectors.{entry.name} to auto in the configuration"
        return [_lacking(entry.name, "everything", "switched off in the configuration", remedy)]
    try:
        collector = make(entry, setup)
    except Exception as error:
        return [_lacking(entry.name, "everything", f"{type(error).__name__}: {error}", None)]
    with suppress(Exception):  # whatever fails, its capabilities tell what is missing
        collector.collect(_tick(setup))
    found = collector.capabilities()
    collector.close()
    return found


def _tick(setup: Setup) -> Tick:
    clock = Clock()
    return Tick(time=clock.now(), boottime=clock.boottime_ns(), boot=boot_id(setup.host), fresh=True)


def _lacking(collector: str, item: str, reason: str, remedy: str | None) -> Capability:
    return Capability(collector=collector, item=item, available=False, reason=reason, remedy=remedy)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
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
    return _lacking("environment", item, "not installed", f"pip install 'vmsonar[{name}]'")
