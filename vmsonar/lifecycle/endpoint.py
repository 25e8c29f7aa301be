"""Asks an endpoint that mints URLs for one, to see whether it would give us any."""

from datetime import datetime, timedelta
from pathlib import Path

from vmsonar_archive.bundle import mint
from vmsonar_archive.bundle.https import shown
from vmsonar_archive.bundle.mint import TryAgain
from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.identity import read_identity

from vmsonar.lifecycle.target import Target

#: The name that is asked for; nothing is put there.
NAME = "vmsonar-check.tar"
#: A URL that ends sooner may not see the end of an upload.
_SHORT = timedelta(minutes=1)


def troubles_with(target: Target, archive: Path, now: datetime) -> list[str]:
    """Why bundles will not get through; empty when they will."""
    identity = read_identity(archive) if (archive / "archive.json").exists() else None
    try:
        place = mint.ask(target.mint(identity), NAME, 0, now)
    except (VmsonarError, TryAgain) as error:
        return [str(error)]
    left = place.expires - now if place.expires is not None else _SHORT
    if left < _SHORT:
        return [f"the URL for {shown(place.url)} expires in {left.total_seconds():.0f} s"]
    return []
