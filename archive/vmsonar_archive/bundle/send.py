"""Makes a bundle and sends it away as it is made: no second copy needs space."""

from collections.abc import Callable
from pathlib import Path

from vmsonar_archive.bundle import s3, upload
from vmsonar_archive.bundle.make import (
    NO_OPTIONS,
    Bundled,
    Deliver,
    Options,
    Progress,
    no_progress,
    run,
    write_plan,
)
from vmsonar_archive.bundle.plan import Plan
from vmsonar_archive.bundle.privileges import OpenOutput
from vmsonar_archive.bundle.write import Signer, Sink, bundle_size
from vmsonar_archive.errors import UsageError, VmsonarError
from vmsonar_archive.findings import Code, Finding, Severity

_MAX_URL = 16 * 1024


def read_url(output: str) -> str:
    """The URL itself, or the one in a file: command lines are seen by everybody on the machine."""
    if not output.startswith("@"):
        return output
    try:
        return Path(output[1:]).read_text()[:_MAX_URL].strip()
    except (OSError, UnicodeDecodeError):
        raise VmsonarError(f"cannot read a URL from {output[1:]}") from None


def bundle_to_url(
    archive: Path, url: str, progress: Progress = no_progress, options: Options = NO_OPTIONS
) -> Bundled:
    """Sends a bundle to https:// (signed for PUT) or s3://."""
    if not url.startswith("s3:"):
        upload.check_url(url)
    elif not url.startswith("s3://"):
        raise UsageError("an S3 object is given as s3://bucket/key")
    else:
        s3.load()
    return run(archive, options, _to_url(url, progress), _no_output, apart=True)


def _no_output(_name: str) -> int:
    raise VmsonarError("an upload has no output file")


def _to_url(url: str, progress: Progress) -> Deliver:
    def deliver(plan: Plan, signer: Signer | None, _ask: OpenOutput) -> Bundled:
        made: list[Bundled] = []
        with progress(plan.payload_bytes) as advance:
            write = _repeatable(plan, signer, advance, made)
            if url.startswith("s3:"):
                sent = s3.put(url, plan.folder, write)
                output = f"s3://{s3.object_path(url, plan.folder)}"
            else:
                sent = upload.put(url, bundle_size(plan, signer), write)
                output = upload.shown(url)
        bundled = made[-1]
        bundled.output, bundled.sha256, bundled.confirmed = output, sent.sha256, sent.confirmed
        if not sent.confirmed:
            detail = "the server took it but gives neither hash nor access to compare with"
            bundled.findings.append(Finding.of(Code.UNCONFIRMED, "", detail, Severity.WARNING))
        return bundled

    return deliver


def _repeatable(
    plan: Plan, signer: Signer | None, advance: Callable[[int], None], made: list[Bundled]
) -> Callable[[Sink], object]:
    """Writes the bundle from its beginning each time; the progress goes back when it has to begin again."""
    gone = 0

    def write(sink: Sink) -> None:
        nonlocal gone
        advance(-gone)
        gone = 0

        def count(done: int) -> None:
            nonlocal gone
            gone += done
            advance(done)

        made.append(write_plan(plan, sink, signer, count))

    return write
