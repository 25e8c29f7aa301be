"""Checks for `vmsonar doctor` whether bundles can reach save.to."""

import os
from datetime import datetime, timedelta
from pathlib import Path

from vmsonar_archive.bundle.make import read_url
from vmsonar_archive.bundle.send.mint import expiry
from vmsonar_archive.records import Capability
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.config.schema import Config
from vmsonar.lifecycle.step import TeardownStep, run_step
from vmsonar.lifecycle.target import SaveTarget, parse_target

_ITEM = "bringing bundles to save.to"
_INCREMENTS = "increments while the VM lives"
#: A URL that expires sooner will hardly outlive the VM.
_SOON = timedelta(days=1)
#: How long an endpoint may take to answer.
_PATIENCE = 20.0


def examine_save(config: Config, archive: Path, now: datetime) -> list[Capability]:
    """Nothing where nothing is configured."""
    if config.save.to is None:
        return []
    try:
        target = parse_target(config.save.to, config.save.token_file)
        if target.is_minted:
            return [_endpoint(config, archive)]
        return [_folder(target) if target.is_folder else _url(target, now), *_increments(target)]
    except VmsonarError as error:
        return [_lacking(str(error), "correct save.to in the configuration")]


def _folder(target: SaveTarget) -> Capability:
    folder = (
        Path(target.template.split("{")[0] + "x").parent if "{" in target.template else Path(target.template)
    )
    if not folder.is_dir():
        return _lacking(f"{folder} is not a folder here", "make it, or mount what belongs there")
    if not os.access(folder, os.W_OK | os.X_OK):
        return _lacking(
            f"{folder} is not writable for user {os.geteuid()}", "let the user vmsonar write there"
        )
    return Capability(collector="save", item=_ITEM, available=True)


def _url(target: SaveTarget, now: datetime) -> Capability:
    url = read_url(target.template) if target.template.startswith("@") else target.template
    ends = expiry(url)
    renew = "give a URL that lasts longer, @FILE with one that is renewed, or s3:// with the instance's role"
    if ends is not None and ends <= now:
        return _lacking(f"the URL has expired at {ends:%Y-%m-%d %H:%M}Z", renew)
    if ends is not None and ends - now < _SOON and not target.template.startswith("@"):
        return _lacking(f"the URL will have expired by {ends:%Y-%m-%d %H:%M}Z", renew)
    return Capability(collector="save", item=_ITEM, available=True)


def _endpoint(config: Config, archive: Path) -> Capability:
    """Asks for a URL, as saving would."""
    step = TeardownStep(what="check", archive=str(archive), save=config.save)
    said = run_step(step, _PATIENCE)
    if said.troubles:
        return _lacking(said.troubles[0], "look at the endpoint that save.to names, and its log")
    return Capability(collector="save", item=_ITEM, available=True)


def _increments(target: SaveTarget) -> list[Capability]:
    """A URL that takes one bundle allows no increments: a sudden end of the VM loses everything."""
    if target.takes_many:
        return []
    reason = "save.to takes one bundle and no second: nothing goes out before the teardown"
    remedy = "give a URL with {time} in it, s3://bucket/prefix/, mint+https://… or a folder"
    return [Capability(collector="save", item=_INCREMENTS, available=False, reason=reason, remedy=remedy)]


def _lacking(reason: str, remedy: str) -> Capability:
    return Capability(collector="save", item=_ITEM, available=False, reason=reason, remedy=remedy)
