"""Delivers a planned bundle; each destination is plain data, so that it can be handed to a worker."""

import os
from collections.abc import Callable
from functools import partial

import msgspec

from vmsonar_archive.bundle.plan import BundlePlan
from vmsonar_archive.bundle.send import mint, s3
from vmsonar_archive.bundle.send.mint import Mint, Place
from vmsonar_archive.bundle.send.upload import PAUSES, Digests, Upload, Write
from vmsonar_archive.bundle.write import Bundled, Signer, Sink, bundle_size, write_bundle
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.progress import Progress

#: Given the bundle's name, the descriptor to write it to.
OpenOutput = Callable[[str], int]
#: Asked for instead of a name when the file is whole and durable and is to get its name.
FINISH = ""


class ToDescriptor(msgspec.Struct, frozen=True, tag=True):
    """To an open file or pipe."""

    #: Whether it is a file that gets its name before anything in it counts as taken.
    finish: bool = False


class ToUrl(msgspec.Struct, frozen=True, tag=True):
    """To https:// or s3://, or to wherever an endpoint says."""

    url: str = ""
    mint: Mint | None = None
    pauses: tuple[float, ...] = PAUSES


Delivery = ToDescriptor | ToUrl


def deliver(
    how: Delivery, plan: BundlePlan, signer: Signer | None, ask: OpenOutput, progress: Progress
) -> Bundled:
    """Writes the bundle there and returns the result."""
    progress.expect(plan.payload_bytes)
    if isinstance(how, ToUrl):
        return _to_url(how, plan, signer, progress)
    descriptor = ask(plan.folder)
    write = partial(files.write_all, descriptor)
    digests = Digests(write) if how.finish else None
    try:
        bundled = write_bundle(plan, digests.send if digests else write, signer, progress.advance)
    except BrokenPipeError:
        raise VmsonarError("the reader of the bundle has gone: what it got is not whole") from None
    if digests is not None:
        os.fsync(descriptor)
        os.close(ask(FINISH))
        bundled.sha256, bundled.confirmed = digests.sha256.hexdigest(), True
    return bundled


def _to_url(how: ToUrl, plan: BundlePlan, signer: Signer | None, progress: Progress) -> Bundled:
    made: list[Bundled] = []
    write = _repeatable(plan, signer, progress, made)
    if how.url.startswith("s3:"):
        sent = s3.put(how.url, plan.folder, write)
    else:
        sent = upload_to(how, f"{plan.folder}.tar", bundle_size(plan, signer), write).put(how.pauses)
    bundled = made[-1]
    bundled.output, bundled.sha256, bundled.confirmed = sent.where, sent.sha256, sent.confirmed
    if not sent.confirmed:
        detail = "the server took it but gives neither hash nor access to compare with"
        bundled.findings.append(Finding.of(Code.UNCONFIRMED, "", detail, Severity.WARNING))
    return bundled


def upload_to(how: ToUrl, name: str, size: int, write: Write) -> Upload:
    """An upload to the one URL, or to a fresh one for each attempt."""
    minting = how.mint
    if minting is None:
        return Upload(lambda: Place(url=how.url), size, write)
    return Upload(lambda: mint.ask(minting, name, size), size, write, fresh_places=True)


def _repeatable(plan: BundlePlan, signer: Signer | None, progress: Progress, made: list[Bundled]) -> Write:
    """Writes the bundle from its beginning each time; the progress goes back when it has to begin again."""
    gone = 0

    def write(sink: Sink) -> None:
        nonlocal gone
        progress.advance(-gone)
        gone = 0

        def count(done: int) -> None:
            nonlocal gone
            gone += done
            progress.advance(done)

        made.append(write_bundle(plan, sink, signer, count))

    return write
