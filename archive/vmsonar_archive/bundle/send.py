"""Makes a bundle and sends it away as it is made: no second copy needs space."""

from pathlib import Path

from vmsonar_archive.bundle import s3, upload
from vmsonar_archive.bundle.deliver import ToUrl
from vmsonar_archive.bundle.https import check_url
from vmsonar_archive.bundle.make import run
from vmsonar_archive.bundle.mint import Mint
from vmsonar_archive.bundle.options import NO_OPTIONS, Bundled, Options, Progress, no_progress
from vmsonar_archive.errors import UsageError, VmsonarError

_MAX_URL = 16 * 1024


def read_url(output: str) -> str:
    """The URL itself, or the one in a file: command lines are seen by everybody on the machine."""
    if not output.startswith("@"):
        return output
    try:
        return Path(output[1:]).read_text()[:_MAX_URL].strip()
    except (OSError, UnicodeDecodeError):
        raise VmsonarError(f"cannot read a URL from {output[1:]}") from None


def to_url(url: str, mint: Mint | None = None) -> ToUrl:
    """How to send to https:// (signed for PUT), s3://, or wherever an endpoint says; refuses what cannot work."""
    if mint is not None:
        return ToUrl(mint=mint, pauses=upload.PAUSES)
    if not url.startswith("s3:"):
        check_url(url)
    elif not url.startswith("s3://"):
        raise UsageError("an S3 object is given as s3://bucket/key")
    else:
        s3.load()
    return ToUrl(url=url, pauses=upload.PAUSES)


def bundle_to_url(
    archive: Path, how: ToUrl, progress: Progress = no_progress, options: Options = NO_OPTIONS
) -> Bundled:
    """Sends a bundle."""
    return run(archive, options, how, _no_output, progress, apart=True)


def _no_output(_name: str) -> int:
    raise VmsonarError("an upload has no output file")
