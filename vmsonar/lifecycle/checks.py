"""What `vmsonar doctor` says about saving: whether bundles will get where they are to go."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from vmsonar_archive.bundle.expiry import expiry
from vmsonar_archive.bundle.send import read_url
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.interpreter import python
from vmsonar_archive.records import Capability

from vmsonar.config import Config
from vmsonar.lifecycle.apart import within
from vmsonar.lifecycle.saved import Saved
from vmsonar.lifecycle.step import Step
from vmsonar.lifecycle.target import Target, parse_target

_ITEM = "bringing bundles to save.to"
_INCREMENTS = "increments while the VM lives"
#: A URL that ends sooner will hardly see the end of the VM.
_SOON = timedelta(days=1)
#: How long an endpoint may take to answer, whatever it does meanwhile.
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


def _folder(target: Target) -> Capability:
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


def _url(target: Target, now: datetime) -> Capability:
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
    step = Step(what="check", archive=str(archive), save=config.save)
    said = within(_PATIENCE, python("-m", "vmsonar.lifecycle.step"), msgspec.json.encode(step), Saved)
    if said.troubles:
        return _lacking(said.troubles[0], "look at the endpoint that save.to names, and its log")
    return Capability(collector="save", item=_ITEM, available=True)


def _increments(target: Target) -> list[Capability]:
    """One URL takes one bundle: what a sudden end then costs is everything."""
    if target.takes_many:
        return []
    reason = "save.to takes one bundle and no second: nothing goes out before the teardown"
    remedy = "give a URL with {time} in it, s3://bucket/prefix/, mint+https://… or a folder"
    return [Capability(collector="save", item=_INCREMENTS, available=False, reason=reason, remedy=remedy)]


def _lacking(reason: str, remedy: str) -> Capability:
    return Capability(collector="save", item=_ITEM, available=False, reason=reason, remedy=remedy)
