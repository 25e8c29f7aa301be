"""Writes a planned bundle as a stream; every byte is hashed as it is copied."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from vmsonar_archive.bundle.plan import BundlePlan, PayloadFile
from vmsonar_archive.format import bag
from vmsonar_archive.format.bag import Header
from vmsonar_archive.read.findings import Code, Finding, Severity

#: Takes the bundle's bytes.
Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs the tag manifest; the length of a signature is known beforehand."""

    size: int
    sign: Callable[[bytes], bytes]


class Bundled(msgspec.Struct, kw_only=True):
    """The result: what was made, for people and programs."""

    #: The bag's own name, which is the file's unless another was asked for.
    name: str
    output: str = ""
    bytes: int = 0
    files: int = 0
    head: str = ""
    #: After an upload: the hash of what went out, and whether the other side said that it has the same.
    sha256: str | None = None
    confirmed: bool | None = None
    findings: list[Finding] = []

    @property
    def ok(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def bundle_size(plan: BundlePlan, signer: Signer | None = None) -> int:
    """The exact number of bytes that write_bundle will produce."""
    zeros = {item.path: "0" * 64 for item in plan.items}
    sizes = [len(bag.DECLARATION), *(item.size for item in plan.items)]
    sizes += [len(content) for _, content in _tag_files(plan, zeros)]
    sizes += [signer.size] if signer else []
    return sum(bag.BLOCK + size + bag.padding(size) for size in sizes) + len(bag.END)


def write_bundle(
    plan: BundlePlan, sink: Sink, signer: Signer | None, advance: Callable[[int], None]
) -> Bundled:
    """Sends the bundle to a sink, from its first byte to its last; can be repeated, and gives the same bytes."""
    bundled = Bundled(
        name=plan.folder, files=len(plan.items), head=plan.record.head, findings=list(plan.findings)
    )

    def count(data: bytes) -> None:
        sink(data)
        bundled.bytes += len(data)

    hashes: dict[str, str] = {}
    _put(plan, count, bag.BAGIT, bag.DECLARATION)
    for item in plan.items:
        hashes[item.path] = _copy(plan, count, item, bundled.findings, advance)
    for name, content in _tag_files(plan, hashes):
        _put(plan, count, name, content)
        if name == bag.TAG_MANIFEST and signer is not None:
            _put(plan, count, bag.SIGNATURE, signer.sign(content))
    count(bag.END)
    return bundled


def _tag_files(plan: BundlePlan, hashes: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """The files that describe the payload and follow it, in the order in which they are written."""
    content = {
        bag.BAGIT: bag.DECLARATION,
        bag.BAG_INFO: bag.bag_info(plan.record.archive, {item.path: item.size for item in plan.items}),
        bag.BUNDLE: msgspec.structs.replace(plan.record, folder=plan.folder).encode(),
        bag.MANIFEST: bag.encode_manifest((bag.PAYLOAD + path, digest) for path, digest in hashes.items()),
    }
    yield from ((name, content[name]) for name in (bag.BAG_INFO, bag.BUNDLE, bag.MANIFEST))
    listed = ((name, hashlib.sha256(content[name]).hexdigest()) for name in bag.LISTED)
    yield bag.TAG_MANIFEST, bag.encode_manifest(listed)


def _put(plan: BundlePlan, sink: Sink, name: str, content: bytes) -> None:
    sink(bag.encode_header(Header(plan.folder, name, len(content))))
    sink(content + bytes(bag.padding(len(content))))


def _copy(
    plan: BundlePlan, sink: Sink, item: PayloadFile, found: list[Finding], advance: Callable[[int], None]
) -> str:
    """Copies one file of the payload; returns the hash of what was copied."""
    sink(bag.encode_header(Header(plan.folder, bag.PAYLOAD + item.path, item.size)))
    digest = hashlib.sha256()
    missing = item.size
    for chunk in item.content():
        digest.update(chunk)
        sink(chunk)
        missing -= len(chunk)
        advance(len(chunk))
    if missing:
        # The header has gone out already: what is gone is replaced by zeros and reported.
        _fill(sink, digest.update, missing)
        found.append(Finding.of(Code.CORRUPT, item.path, "became shorter while it was read"))
    elif item.sha256 is not None and digest.hexdigest() != item.sha256:
        detail = "its SHA-256 differs from the journal's; it is taken along as it is"
        found.append(Finding.of(Code.CORRUPT, item.path, detail))
    if pad := bag.padding(item.size):
        sink(bytes(pad))
    return digest.hexdigest()


def _fill(sink: Sink, update: Callable[[bytes], object], missing: int) -> None:
    while missing:
        zeros = bytes(min(missing, 1024 * 1024))
        update(zeros)
        sink(zeros)
        missing -= len(zeros)
