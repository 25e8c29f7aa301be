"""A bundle is what the page says: canonical, deterministic, and readable with stock tools."""

import subprocess
import sys
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.format import bag as tar
from vmsonar_archive.format.bag import Header
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.path import verify_path

from tests.making.bundles import START, fill, make_archive, open_writer
from tests.parts import requires


def test_header_is_what_the_standard_library_writes() -> None:
    info = tarfile.TarInfo("bag/data/archive.json")
    info.size, info.mtime, info.mode = 221, tar.MTIME, 0o644
    theirs = info.tobuf(format=tarfile.USTAR_FORMAT)
    ours = tar.encode_header(Header("bag", "data/archive.json", 221))
    # They fill the name before the prefix, and leave device numbers empty; the rest is the same.
    assert ours[100:148] == theirs[100:148]
    assert ours[156:329] == theirs[156:329]
    assert tarfile.TarInfo.frombuf(ours, "ascii", "strict").name == "bag/data/archive.json"
    assert tar.decode_header(ours) == Header("bag", "data/archive.json", 221)


def test_name_tells_node_archive_and_time(bundle: Path) -> None:
    node, last, archive = bundle.stem.split("_")
    assert (node, last, len(archive)) == ("web1", "20261116T1404", 8)


def test_two_runs_are_byte_identical(archive: Path, bundle: Path, tmp_path: Path) -> None:
    again = bundle_to_file(archive, tmp_path / "again.tar")
    assert Path(again.output).read_bytes() == bundle.read_bytes()
    assert again.bytes == bundle.stat().st_size


@requires("bagit", "zstd")
def test_stock_tools_accept_it(bundle: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", bundle, "-C", tmp_path], check=True)
    bag = tmp_path / bundle.stem
    subprocess.run([sys.executable, "-m", "bagit", "--quiet", "--validate", bag], check=True)
    for sums in ("manifest-sha256.txt", "tagmanifest-sha256.txt"):
        subprocess.run(["sha256sum", "--quiet", "--strict", "-c", sums], cwd=bag, check=True)
    segments = sorted(bag.glob("data/*/*/*/*.zst"))
    assert len(segments) == 3
    subprocess.run(["zstd", "-q", "-t", *segments], check=True)
    assert verify_path(bag / "data").ok


def test_verify_accepts_it_and_counts(bundle: Path) -> None:
    report = verify_path(bundle)
    assert report.ok
    assert report.findings == []
    assert (report.samples, report.files) == (40, 3)


def test_reads_like_the_archive(archive: Path, bundle: Path) -> None:
    with open_archive(archive) as folder, open_archive(bundle) as inside:
        assert list(inside.samples()) == list(folder.samples())
        assert list(inside.sysinfos()) == list(folder.sysinfos())
        assert inside.identity == folder.identity


@requires("zstd")
def test_live_segment_goes_up_to_its_last_whole_sample(tmp_path: Path) -> None:
    writer = open_writer(make_archive(tmp_path / "archive"))
    fill(writer, 7, START + timedelta(hours=3), first=100)
    live = next((tmp_path / "archive").glob("2026/11/16/sample-165800-*.zst"))
    with live.open("ab") as file:
        file.write(b"\x00\x05\x00torn")
    bundled = bundle_to_file(tmp_path / "archive", tmp_path)
    writer.close()
    assert bundled.ok
    assert verify_path(Path(bundled.output)).ok
    with open_archive(Path(bundled.output)) as inside:
        assert len(list(inside.samples())) == 47
    with tarfile.open(bundled.output) as file:
        name = next(name for name in file.getnames() if "sample-165800" in name)
        stream = file.extractfile(name)
        assert stream is not None
        subprocess.run(["zstd", "-q", "-t"], input=stream.read(), check=True)


def test_namespace_and_lock_stay_behind(archive: Path, bundle: Path) -> None:
    assert (archive / "namespace").exists()
    with tarfile.open(bundle) as file:
        assert not [name for name in file.getnames() if name.endswith(("namespace", "writer.lock"))]


def test_changed_file_is_taken_along_and_said(tmp_path: Path) -> None:
    make_archive(tmp_path / "archive")
    segment = next((tmp_path / "archive").glob("2026/11/16/sample-14*.zst"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    bundled = bundle_to_file(tmp_path / "archive", tmp_path)
    assert not bundled.ok
    assert [finding.code.value for finding in bundled.findings] == ["corrupt"]
    report = verify_path(Path(bundled.output))
    assert not report.ok
    assert bytes(content) in Path(bundled.output).read_bytes()


def test_deep_look_is_spread_over_processes(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmsonar_archive.verify.content._WORTH_BYTES", 0)
    bundled = bundle_to_file(archive, tmp_path / "x.tar")
    report = verify_path(Path(bundled.output), Depth.DEEP)
    assert report.ok
    assert report.findings == []
    assert (report.samples, report.files) == (40, 3)
    content = bytearray(Path(bundled.output).read_bytes())
    content[5000] ^= 1
    (tmp_path / "y.tar").write_bytes(content)
    assert not verify_path(tmp_path / "y.tar", Depth.DEEP).ok
