"""Writes a planned bundle as a stream; every byte is hashed as it is copied."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vmsonar_archive.bundle import manifest, names, tar
from vmsonar_archive.bundle.plan import Item, Plan
from vmsonar_archive.bundle.tar import Header
from vmsonar_archive.findings import Code, Finding

#: Makes the signature of a tag manifest, and says beforehand how long it will be.
Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Signer:
    """Something that signs the tag manifest."""

    size: int
    sign: Callable[[bytes], bytes]


@dataclass(slots=True)
class Written:
    """What became of the files while they were copied."""

    findings: list[Finding] = field(default_factory=list)


def bundle_size(plan: Plan, signer: Signer | None = None) -> int:
    """The exact number of bytes that write_bundle will produce."""
    zeros = {item.path: "0" * 64 for item in plan.items}
    sizes = [item.size for item in plan.items]
    sizes += [len(content) for _, content in _tag_files(plan, zeros)]
    sizes += [signer.size] if signer else []
    return sum(tar.BLOCK + size + tar.padding(size) for size in sizes) + len(tar.END)


def write_bundle(plan: Plan, sink: Sink, signer: Signer | None, progress: Callable[[int], None]) -> Written:
    """Sends the bundle to a sink, from its first byte to its last."""
    written = Written()
    hashes: dict[str, str] = {}
    _put(plan, sink, names.BAGIT, manifest.DECLARATION)
    for item in plan.items:
        hashes[item.path] = _copy(plan, sink, item, written, progress)
    for name, content in _tag_files(plan, hashes):
        if name != names.BAGIT:
            _put(plan, sink, name, content)
        if name == names.TAG_MANIFEST and signer is not None:
            _put(plan, sink, names.SIGNATURE, signer.sign(content))
    sink(tar.END)
    return written


def _tag_files(plan: Plan, hashes: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """The files that describe the payload, in the order in which they are written."""
    yield names.BAGIT, manifest.DECLARATION
    content = {
        names.BAGIT: manifest.DECLARATION,
        names.BAG_INFO: manifest.bag_info(plan.record.archive, {item.path: item.size for item in plan.items}),
        names.BUNDLE: plan.record.encode(),
        names.MANIFEST: manifest.encode((names.PAYLOAD + path, digest) for path, digest in hashes.items()),
    }
    yield from ((name, content[name]) for name in (names.BAG_INFO, names.BUNDLE, names.MANIFEST))
    listed = ((name, hashlib.sha256(content[name]).hexdigest()) for name in names.LISTED)
    yield names.TAG_MANIFEST, manifest.encode(listed)


def _put(plan: Plan, sink: Sink, name: str, content: bytes) -> None:
    sink(tar.encode(Header(plan.folder, name, len(content))))
    sink(content + bytes(tar.padding(len(content))))


def _copy(plan: Plan, sink: Sink, item: Item, written: Written, progress: Callable[[int], None]) -> str:
    """Copies one file of the payload; returns the hash of what was copied."""
    sink(tar.encode(Header(plan.folder, names.PAYLOAD + item.path, item.size)))
    digest = hashlib.sha256()
    missing = item.size
    for chunk in item.content():
        digest.update(chunk)
        sink(chunk)
        missing -= len(chunk)
        progress(len(chunk))
    if missing:
        # The header has gone out already: what is not there any more becomes zeros, and is said.
        _fill(sink, digest.update, missing)
        written.findings.append(Finding.of(Code.CORRUPT, item.path, "became shorter while it was read"))
    elif item.sha256 is not None and digest.hexdigest() != item.sha256:
        detail = "its SHA-256 differs from the journal's; it is taken along as it is"
        written.findings.append(Finding.of(Code.CORRUPT, item.path, detail))
    if pad := tar.padding(item.size):
        sink(bytes(pad))
    return digest.hexdigest()


def _fill(sink: Sink, update: Callable[[bytes], object], missing: int) -> None:
    while missing:
        zeros = bytes(min(missing, 1024 * 1024))
        update(zeros)
        sink(zeros)
        missing -= len(zeros)
