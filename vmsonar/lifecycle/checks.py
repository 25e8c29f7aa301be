"""What `vmsonar doctor` says about saving: whether bundles will get where they are to go."""

import os
from datetime import datetime, timedelta
from pathlib import Path

from vmsonar_archive.bundle.send import read_url
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.records import Capability

from vmsonar.config import Config
from vmsonar.lifecycle.target import Target, expiry, parse_target

_ITEM = "bringing bundles to save.to"
#: A URL that ends sooner will hardly see the end of the VM.
_SOON = timedelta(days=1)


def examine_save(config: Config, now: datetime) -> list[Capability]:
    """Nothing where nothing is configured."""
    if config.save.to is None:
        return []
    try:
        target = parse_target(config.save.to)
        return [_folder(target) if target.is_folder else _url(target, now)]
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


def _lacking(reason: str, remedy: str) -> Capability:
    return Capability(collector="save", item=_ITEM, available=False, reason=reason, remedy=remedy)
