"""Random bytes and random changes through the tar walker, the manifest parser and the reader (hypothesis)."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vmsonar_archive.format import bag
from vmsonar_archive.format.bag import BadHeader, BadManifest
from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.read.reader import Archive
from vmsonar_archive.read.source import BundleSource, NotABundle, open_source
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.path import verify_path

SHORT = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LONG = settings(SHORT, max_examples=20_000)

edits = st.lists(
    st.tuples(
        st.integers(0, 2**31), st.sampled_from(["set", "cut", "insert", "copy"]), st.binary(max_size=600)
    ),
    min_size=1,
    max_size=4,
)


def _edited(content: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    for place, what, data in changes:
        at = place % (len(content) + 1)
        if what == "set":
            content = content[:at] + data + content[at + len(data) :]
        elif what == "cut":
            content = content[:at] + content[at + 512 * (len(data) % 9) + len(data) % 2 :]
        elif what == "insert":
            content = content[:at] + data + content[at:]
        else:
            block = at // 512 * 512
            content = content[:block] + content[block : block + 1024] + content[block:]
    return content


def _check(content: bytes, original: bytes) -> None:
    """Whatever it is, it is answered; only the original is whole."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(content)
        file.flush()
        report = verify_path(Path(file.name), Depth.DEEP)
        assert report.ok == (content == original)
        try:
            source = open_source(Path(file.name))
        except NotABundle:
            return
        try:
            with Archive(source) as archive:
                assert all(sample.seq for sample in archive.samples())
                list(archive.sysinfos())
        except VmsonarError:
            source.close()


def _fuzz_bundle(bundle: Path, changes: list[tuple[int, str, bytes]]) -> None:
    original = bundle.read_bytes()
    _check(_edited(original, changes), original)


@SHORT
@given(changes=edits)
def test_changed_bundles(bundle: Path, changes: list[tuple[int, str, bytes]]) -> None:
    _fuzz_bundle(bundle, changes)


@pytest.mark.chaos
@LONG
@given(changes=edits)
def test_changed_bundles_for_long(bundle: Path, changes: list[tuple[int, str, bytes]]) -> None:
    _fuzz_bundle(bundle, changes)


@SHORT
@given(block=st.binary(min_size=512, max_size=512))
def test_headers_are_canonical_or_refused(block: bytes) -> None:
    try:
        header = bag.decode_header(block)
    except BadHeader:
        return
    assert bag.encode_header(header) == block


@SHORT
@given(
    st.text(alphabet="ab./-_0 \n\0é", max_size=30),
    st.text(alphabet="ab./-_0 \n\0é", max_size=30),
    st.integers(-1, 2**34),
)
def test_headers_say_what_they_were_told_or_refuse(folder: str, name: str, size: int) -> None:
    try:
        block = bag.encode_header(bag.Header(folder, name, size))
    except ValueError:
        return
    assert bag.decode_header(block) == bag.Header(folder, name, size)
    assert ".." not in name.split("/")
    assert not name.startswith("/")


lines = st.one_of(
    st.binary(max_size=100),
    st.builds(lambda name: b"0" * 64 + b"  " + name, st.binary(max_size=60)),
)


@SHORT
@given(content=st.lists(lines, max_size=6).map(b"\n".join))
def test_manifests_are_canonical_or_refused(content: bytes) -> None:
    try:
        listed = bag.decode_manifest(content)
    except BadManifest:
        return
    assert bag.encode_manifest(listed.items()) == content


@SHORT
@given(changes=edits)
def test_changed_segments_never_raise(bundle: Path, changes: list[tuple[int, str, bytes]]) -> None:
    source = BundleSource(bundle)
    path = next(path for path in source.sizes() if "sample-14" in path)
    with source.open(path) as stream:
        content = _edited(stream.read(), changes)
    source.close()
    with tempfile.TemporaryFile() as file:
        os.write(file.fileno(), content)
        file.seek(0)
        assert sum(len(found.lines) for found in read_frames(file)) <= 28 * 3
