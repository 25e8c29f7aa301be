"""Files that somebody made to hurt whoever opens them, each by one function."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import zstandard
from vmsonar_archive.bundle import manifest, names, tar
from vmsonar_archive.bundle.record import BundledFile, BundleRecord
from vmsonar_archive.bundle.source import BundleSource
from vmsonar_archive.bundle.tar import Header
from vmsonar_archive.journal import GENESIS

SEGMENT = "2026/11/16/sample-140000-1.jsonl.zst"
IDENTITY = b'{"format":1,"archive":"a","machine_id":"m","created":"2026-11-16T00:00:00Z"}\n'
SECRET = "/etc/shadow"


def canonical(
    payload: dict[str, bytes],
    described: list[BundledFile] | None = None,
    head: str = GENESIS,
    archive: str = "a",
) -> bytes:
    """A bundle that is right in every hash, whatever it holds."""
    record = BundleRecord(format=1, archive=archive, head=head, files=described or [])
    data = {names.PAYLOAD + path: content for path, content in payload.items()}
    sums = ((name, hashlib.sha256(content).hexdigest()) for name, content in data.items())
    tags = {
        names.BAGIT: manifest.DECLARATION,
        names.BAG_INFO: manifest.bag_info(archive, {path: len(content) for path, content in payload.items()}),
        names.BUNDLE: record.encode(),
        names.MANIFEST: manifest.encode(sums),
    }
    listed = [(name, hashlib.sha256(tags[name]).hexdigest()) for name in names.LISTED]
    members = [(names.BAGIT, tags.pop(names.BAGIT)), *data.items(), *tags.items()]
    members.append((names.TAG_MANIFEST, manifest.encode(listed)))
    return b"".join(member(name, content) for name, content in members) + tar.END


def member(name: str, content: bytes) -> bytes:
    return tar.encode(Header("bag", name, len(content))) + content + bytes(tar.padding(len(content)))


def with_segment(content: bytes, records: int = 1) -> bytes:
    """A bundle whose only segment holds that, and says so."""
    described = BundledFile(
        path=SEGMENT,
        operations=["live"],
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        records=records,
    )
    return canonical({"archive.json": IDENTITY, "journal.jsonl": b"", SEGMENT: content}, [described])


def line(body: bytes) -> bytes:
    """A line with a right checksum."""
    head = b'{"time":"2026-11-16T14:00:00Z","seq":1,"run":"r","boot":"b","boottime":1'
    return b'%b,"crc":"%08x"}\n' % (head + body, zlib.crc32(head + body))


def frames(*contents: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    return b"".join(compressor.compress(content) for content in contents)


def _members(good: Path, change: Callable[[tarfile.TarFile, str], None]) -> bytes:
    """A good bundle's files through the standard library's tar, with something added at its end."""
    buffer = io.BytesIO()
    with (
        tarfile.open(good) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as target,
    ):
        for info in source:
            target.addfile(info, source.extractfile(info))
        change(target, info.name.split("/")[0])
    return buffer.getvalue()


def _added(good: Path, name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """A good bundle with one member more, inside it and canonical up to there."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mtime = kind, link, tar.MTIME
    return _inserted(good, info.tobuf(tarfile.USTAR_FORMAT))


def _inserted(good: Path, block: bytes) -> bytes:
    content = good.read_bytes()
    return content[:1024] + block + content[1024:]


def _folder(good: Path) -> str:
    source = BundleSource(good)
    source.close()
    return source.walked.folder


def _raw_name(good: Path, name: bytes) -> bytes:
    """A header whose name no library would write, with a right checksum."""
    block = bytearray(tar.encode(Header(_folder(good), "data/archive.json", 0)))
    block[:100] = name.ljust(100, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return _inserted(good, bytes(block))


def _huge(good: Path, base256: bool) -> bytes:
    block = bytearray(tar.encode(Header(_folder(good), f"data/{SEGMENT}", 0)))
    block[124:136] = b"\x80" + (10 * 10**12).to_bytes(11, "big") if base256 else b"77777777777\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return _inserted(good, bytes(block))


def _million(_good: Path) -> Iterable[bytes]:
    yield member(names.BAGIT, manifest.DECLARATION)
    for start in range(0, 1_000_000, 10_000):
        yield b"".join(
            tar.encode(Header("bag", f"data/2026/11/16/sample-140000-{start + number}.jsonl.zst", 0))
            for number in range(10_000)
        )
    yield tar.END


def _zstd_bomb(_good: Path) -> bytes:
    compressor = zstandard.ZstdCompressor(level=19, write_checksum=True)
    return with_segment(compressor.compress(bytes(2**30)))


def _lines_bomb(_good: Path) -> bytes:
    """Valid lines, over and over: half a gigabyte in a few kilobytes."""
    return with_segment(frames(line(b',"x":"%b"' % (b"a" * 2**20)) * 400), 400)


def _rows_bomb(_good: Path) -> bytes:
    """Five million empty rows in one line."""
    return with_segment(frames(line(b',"node":[' + b"{}," * 5_000_000 + b"{}]")))


def _deep_bomb(_good: Path) -> bytes:
    return with_segment(frames(line(b',"x":' + b"[" * 1_000_000 + b"]" * 1_000_000)))


def _labels_bomb(_good: Path) -> bytes:
    labels = b",".join(b'"%x":""' % number for number in range(1_200_000))
    row = b',"container_info":[{"series_id":"s","container_id":"c","labels":{%b}}]' % labels
    return with_segment(frames(line(row)))


def _journal_bomb(_good: Path) -> bytes:
    return canonical({"archive.json": IDENTITY, "journal.jsonl": b"\n" * (60 * 2**20)})


def _record_bomb(good: Path) -> bytes:
    files = b'"files":[' + b"[]," * 5_000_000 + b"[]]"
    content = (
        b'{"format":1,"archive":"a","head":"","left_out":[' + b'"",' * 4_000_000 + b'""],' + files + b"}"
    )
    return good.read_bytes()[:1024] + member("bundle.json", content) + tar.END


def _ghost(good: Path) -> bytes:
    """A manifest that lists what is not there; every other sum is right."""
    described = BundledFile(path=SEGMENT, operations=["live"], bytes=7, sha256="0" * 64, records=1)
    whole = canonical({"archive.json": IDENTITY, "journal.jsonl": b"", SEGMENT: b"1234567"}, [described])
    begin = whole.index(member(f"data/{SEGMENT}", b"1234567"))
    return whole[:begin] + whole[begin + 1024 :]


def _other_bag(_good: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as target:
        sums = f"{hashlib.sha256(b'hello').hexdigest()}  data/hello.txt\n".encode()
        files = {"bagit.txt": manifest.DECLARATION, "data/hello.txt": b"hello", "manifest-sha256.txt": sums}
        for name, content in files.items():
            info = tarfile.TarInfo(f"holiday/{name}")
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _newer(_good: Path) -> bytes:
    return canonical({"archive.json": json.dumps({"format": 99}).encode(), "journal.jsonl": b""})


CASES: dict[str, Callable[[Path], bytes | Iterable[bytes]]] = {
    "parent": lambda good: _raw_name(good, b"../../../tmp/evil"),
    "absolute": lambda good: _raw_name(good, b"/tmp/evil"),
    "symlink": lambda good: _added(good, "bag/data/x", tarfile.SYMTYPE, SECRET),
    "hardlink": lambda good: _added(good, "bag/data/x", tarfile.LNKTYPE, SECRET),
    "fifo": lambda good: _added(good, "bag/data/x", tarfile.FIFOTYPE),
    "device": lambda good: _added(good, "bag/data/x", tarfile.CHRTYPE),
    "folder": lambda good: _added(good, "bag/data", tarfile.DIRTYPE),
    "sparse": lambda good: _added(good, "bag/data/x", tarfile.GNUTYPE_SPARSE),
    "extended": lambda good: _added(good, "bag/data/x", tarfile.XHDTYPE),
    "duplicate": lambda good: _inserted(good, good.read_bytes()[:1024]),
    "newline": lambda good: _raw_name(good, b"data/2026/11/16/sample-1\nerror: all is lost"),
    "nul": lambda good: _raw_name(good, b"data/archive.json\0.exe"),
    "escape": lambda good: _raw_name(good, b"data/\x1b[2Jcleared"),
    "gnu_tar": lambda good: _members(good, lambda _target, _folder: None),
    "million": _million,
    "ten_terabytes": lambda good: _huge(good, base256=True),
    "eight_gigabytes": lambda good: _huge(good, base256=False),
    "zstd_bomb": _zstd_bomb,
    "lines_bomb": _lines_bomb,
    "rows_bomb": _rows_bomb,
    "deep_bomb": _deep_bomb,
    "labels_bomb": _labels_bomb,
    "journal_bomb": _journal_bomb,
    "record_bomb": _record_bomb,
    "ghost": _ghost,
    "other_bag": _other_bag,
    "newer": _newer,
    "gzip": lambda good: gzip.compress(good.read_bytes()),
    "random": lambda _good: os.urandom(200_000),
    "random_large": lambda _good: (os.urandom(2**20) for _ in range(100)),
    "empty": lambda _good: b"",
    "trailing": lambda good: good.read_bytes() + b"\0" * 512,
}
