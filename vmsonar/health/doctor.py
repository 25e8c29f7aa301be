"""Lists what can be collected here and what cannot, why, and what would change that."""

import os
import resource
from datetime import datetime, timedelta
from importlib.util import find_spec
from itertools import starmap
from pathlib import Path

from vmsonar_archive.bundle.make import read_url
from vmsonar_archive.bundle.send.mint import expiry
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
from vmsonar.lifecycle.step import TeardownStep, run_step
from vmsonar.lifecycle.target import SaveTarget, parse_target

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
_SAVING = "bringing bundles to save.to"
#: A URL that expires sooner will hardly outlive the VM.
_SOON = timedelta(days=1)
#: How long an endpoint may take to answer.
_PATIENCE = 20.0


def examine(config: Config, archive: Path) -> list[Capability]:
    """All capabilities, the environment first."""
    found = [_writable(archive), _space(archive, config), _descriptors(), *starmap(_extra, _EXTRAS)]
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
        return [_judged(entry.name, "everything", "switched off in the configuration", remedy)]
    if not entry.is_on(setup.config):
        return []
    try:
        collector = make(entry, setup)
    except Exception as error:
        return [_judged(entry.name, "everything", f"{type(error).__name__}: {error}", None)]
    sampler = Sampler([collector], setup.config.interval, setup.clock, Log("error"))
    clock = setup.clock
    tick = Tick(time=clock.now(), boottime=clock.boottime_ns(), boot=boot_id(setup.host), fresh=True)
    sampler.sample(tick)  # whatever fails, its capabilities tell what is missing
    found = capabilities_of(collector)
    sampler.close()
    return found


def _judged(collector: str, item: str, lacking: str | None, remedy: str | None) -> Capability:
    """Available unless something is lacking; then it is said why, and what would change that."""
    if lacking is None:
        return Capability(collector=collector, item=item, available=True)
    return Capability(collector=collector, item=item, available=False, reason=lacking, remedy=remedy)


def _unwritable(folder: Path) -> str | None:
    is_writable = os.access(folder, os.W_OK | os.X_OK)
    return None if is_writable else f"{folder} is not writable for user {os.geteuid()}"


def _existing(path: Path) -> Path:
    """The path, or its nearest existing parent."""
    return next((one for one in (path, *path.absolute().parents) if one.is_dir()), Path("/"))


def _writable(archive: Path) -> Capability:
    remedy = "choose another folder with --archive, or run as the user who owns this one"
    return _judged("archive", f"writing to {archive}", _unwritable(_existing(archive)), remedy)


def _space(archive: Path, config: Config) -> Capability:
    free, wanted = free_bytes(_existing(archive)), config.budget.min_free
    item = f"{show_size(wanted)} that stay free on the disk (budget.min_free)"
    lacking = None if free >= wanted else f"{show_size(free)} are free"
    return _judged("archive", item, lacking, "free some space or lower budget.min_free")


def _identity(archive: Path) -> list[Capability]:
    """Where the archive's identity differs from what its journal vouches for."""
    if not (archive / ARCHIVE_FILE).exists():
        return []
    item, remedy = "the identity of what was recorded here", "see vmsonar verify; put it back from a bundle"
    try:
        with open_archive(archive) as opened:
            found = [f"{one.path} {one.detail}" for one in opened.source.misfits(opened.ledger)]
    except VmsonarError as error:
        found = [str(error)]
    return [_judged("identity", item, one, remedy) for one in found]


def _descriptors() -> Capability:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = hard == resource.RLIM_INFINITY or hard >= _DESCRIPTORS
    lacking = None if is_enough else f"the hard limit is {hard}: sampling is right but costs more"
    remedy = f"LimitNOFILE={_DESCRIPTORS * 4} in a drop-in of vmsonar.service, or ulimit -Hn"
    return _judged("environment", "descriptors kept open for cheap sampling", lacking, remedy)


def _extra(name: str, module: str, purpose: str) -> Capability:
    lacking = None if find_spec(module) is not None else "not installed"
    return _judged("environment", f"extra {name}: {purpose}", lacking, way_to_add(name))


def examine_save(config: Config, archive: Path, now: datetime) -> list[Capability]:
    """Whether bundles can reach save.to; nothing where nothing is configured."""
    if config.save.to is None:
        return []
    try:
        target = parse_target(config.save.to, config.save.token_file)
        if target.is_minted:
            return [_endpoint(config, archive)]
        return [_folder(target) if target.is_folder else _url(target, now), *_increments(target)]
    except VmsonarError as error:
        return [_judged("save", _SAVING, str(error), "correct save.to in the configuration")]


def _folder(target: SaveTarget) -> Capability:
    folder = target.fixed_folder
    if not folder.is_dir():
        remedy = "make it, or mount what belongs there"
        return _judged("save", _SAVING, f"{folder} is not a folder here", remedy)
    return _judged("save", _SAVING, _unwritable(folder), "let the user vmsonar write there")


def _url(target: SaveTarget, now: datetime) -> Capability:
    is_renewed = target.template.startswith("@")
    ends = expiry(read_url(target.template) if is_renewed else target.template)
    lacking = None
    if ends is not None and ends <= now:
        lacking = f"the URL has expired at {ends:%Y-%m-%d %H:%M}Z"
    elif ends is not None and ends - now < _SOON and not is_renewed:
        lacking = f"the URL will have expired by {ends:%Y-%m-%d %H:%M}Z"
    renew = "give a URL that lasts longer, @FILE with one that is renewed, or s3:// with the instance's role"
    return _judged("save", _SAVING, lacking, renew)


def _endpoint(config: Config, archive: Path) -> Capability:
    """Asks for a URL, as saving would."""
    said = run_step(TeardownStep(what="check", archive=str(archive), save=config.save), _PATIENCE)
    lacking = said.troubles[0] if said.troubles else None
    return _judged("save", _SAVING, lacking, "look at the endpoint that save.to names, and its log")


def _increments(target: SaveTarget) -> list[Capability]:
    """A URL that takes one bundle allows no increments: a sudden end of the VM loses everything."""
    if target.takes_many:
        return []
    lacking = "save.to takes one bundle and no second: nothing goes out before the teardown"
    remedy = "give a URL with {time} in it, s3://bucket/prefix/, mint+https://… or a folder"
    return [_judged("save", "increments while the VM lives", lacking, remedy)]
