"""Which files a bundle holds, in which order, and what it is called."""

import re
from datetime import datetime

from vmsonar_archive import layout
from vmsonar_archive.layout import SegmentName

BAGIT = "bagit.txt"
BAG_INFO = "bag-info.txt"
BUNDLE = "bundle.json"
MANIFEST = "manifest-sha256.txt"
TAG_MANIFEST = "tagmanifest-sha256.txt"
SIGNATURE = TAG_MANIFEST + ".sig"
PAYLOAD = "data/"

#: Tag files that the tag manifest lists, in its order.
LISTED = (BAG_INFO, BAGIT, BUNDLE, MANIFEST)
_BEFORE = (BAGIT, PAYLOAD + layout.ARCHIVE_FILE, PAYLOAD + layout.JOURNAL_FILE)
_AFTER = (BAG_INFO, BUNDLE, MANIFEST, TAG_MANIFEST, SIGNATURE)
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
_BAG_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")


def rank(name: str) -> tuple[int, str] | None:
    """Where in the file a member stands; None for what is no part of a bundle."""
    if name in _BEFORE:
        return _BEFORE.index(name), ""
    if name in _AFTER:
        return len(_BEFORE) + 1 + _AFTER.index(name), ""
    path = name.removeprefix(PAYLOAD)
    known = SegmentName.parse(path) is not None or layout.is_parquet(path)
    return (len(_BEFORE), path) if known and name != path else None


def bag_name(node: str, archive: str, first: datetime, last: datetime) -> str:
    """Node, archive and the time from the first to the last record: the bag's folder, and the file's usual name."""
    safe = _UNSAFE.sub("-", node).strip("-")[:63] or "node"
    return f"{safe}_{_UNSAFE.sub('-', archive)[:40]}_{first:%Y%m%dT%H%M%SZ}_{last:%Y%m%dT%H%M%SZ}"


def is_bag_name(name: str) -> bool:
    """Whether it can be what `bag_name` gives: no path leads elsewhere by it."""
    return _BAG_NAME.fullmatch(name) is not None
