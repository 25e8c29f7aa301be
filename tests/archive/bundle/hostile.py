"""Files that somebody made to hurt whoever opens them, each by one function."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import zstandard
from vmsonar_archive.format import bag
from vmsonar_archive.format.bag import BundledFile, BundleRecord, Header
from vmsonar_archive.format.journal import GENESIS
from vmsonar_archive.read.source import BundleSource

SEGMENT = "2026/11/16/sample-140000-1.jsonl.zst"
ARCHIVE = "c1f0e7f4-1d0b-4f0e-9d3a-6a1f0f6f7c11"
IDENTITY = (
    b'{"format":1,"archive":"%b","machine_id":"m","created":"2026-11-16T00:00:00Z"}\n' % ARCHIVE.encode()
)
SECRET = "/etc/shadow"


def canonical(
    payload: dict[str, bytes],
    described: list[BundledFile] | None = None,
    head: str = GENESIS,
    archive: str = ARCHIVE,
) -> bytes:
    """A bundle that is right in every hash, whatever it holds."""
    record = BundleRecord(format=1, archive=archive, head=head, files=described or [])
    data = {bag.PAYLOAD + path: content for path, content in payload.items()}
    sums = ((name, hashlib.sha256(content).hexdigest()) for name, content in data.items())
    tags = {
        bag.BAGIT: bag.DECLARATION,
        bag.BAG_INFO: bag.bag_info(archive, {path: len(content) for path, content in payload.items()}),
        bag.BUNDLE: record.encode(),
        bag.MANIFEST: bag.encode_manifest(sums),
    }
    listed = [(name, hashlib.sha256(tags[name]).hexdigest()) for name in bag.LISTED]
    members = [(bag.BAGIT, tags.pop(bag.BAGIT)), *data.items(), *tags.items()]
    members.append((bag.TAG_MANIFEST, bag.encode_manifest(listed)))
    return b"".join(member(name, content) for name, content in members) + bag.END


def member(name: str, content: bytes) -> bytes:
    return bag.encode_header(Header("bag", name, len(content))) + content + bytes(bag.padding(len(content)))


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
    info.type, info.linkname, info.mtime = kind, link, bag.MTIME
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
    block = bytearray(bag.encode_header(Header(_folder(good), "data/archive.json", 0)))
    block[:100] = name.ljust(100, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return _inserted(good, bytes(block))


def _huge(good: Path, base256: bool) -> bytes:
    block = bytearray(bag.encode_header(Header(_folder(good), f"data/{SEGMENT}", 0)))
    block[124:136] = b"\x80" + (10 * 10**12).to_bytes(11, "big") if base256 else b"77777777777\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return _inserted(good, bytes(block))


def _million(_good: Path) -> Iterable[bytes]:
    yield member(bag.BAGIT, bag.DECLARATION)
    for start in range(0, 1_000_000, 10_000):
        yield b"".join(
            bag.encode_header(Header("bag", f"data/2026/11/16/sample-140000-{start + number}.jsonl.zst", 0))
            for number in range(10_000)
        )
    yield bag.END


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


def _chained(lines: Iterable[dict[str, object]]) -> Iterator[bytes]:
    """Lines of a journal, each with the hash of the one before."""
    head = GENESIS
    for entry in lines:
        text = json.dumps(
            {"time": "2026-11-16T14:00:00Z", "sha256": "0" * 64, **entry, "prev": head}
        ).encode()
        head = hashlib.sha256(text).hexdigest()
        yield text + b"\n"


def _with_journal(journal: bytes) -> bytes:
    return canonical({"archive.json": IDENTITY, "journal.jsonl": journal})


def _merge_bomb(_good: Path) -> bytes:
    """Merges of 90,000 segments each."""
    merges = (
        {
            "op": "merge",
            "path": f"2026/11/16/sample-140000-{1 + merge}.jsonl.zst",
            "bytes": 1,
            "sources": [
                f"2026/11/16/sample-140000-{merge}{source:05}.jsonl.zst" for source in range(10_000, 100_000)
            ],
        }
        for merge in range(1, 4)
    )
    return _with_journal(b"".join(_chained(merges)))


def _merges_bomb(_good: Path) -> bytes:
    """Merges of as many segments as a line takes."""
    merges = (
        {
            "op": "merge",
            "path": f"2026/11/16/sample-140000-{1 + merge}.jsonl.zst",
            "bytes": 1,
            "sources": [
                f"2026/11/16/sample-140000-{merge}{source}.jsonl.zst" for source in range(10_000, 30_000)
            ],
        }
        for merge in range(1, 11)
    )
    return _with_journal(b"".join(_chained(merges)))


def _reasons_bomb(_good: Path) -> bytes:
    """Drops for reasons of a megabyte."""
    drops = (
        {
            "op": "drop",
            "path": f"2026/11/16/sample-140000-{1 + n}.jsonl.zst",
            "bytes": 1,
            "reason": "x" * 10**6,
        }
        for n in range(200)
    )
    return _with_journal(b"".join(_chained(drops)))


def _runs_bomb(_good: Path) -> bytes:
    """A segment whose every record is of another boot, with names of a megabyte."""
    body = b'{"time":"2026-11-16T14:00:00Z","seq":%d,"run":"%b","boot":"%d","boottime":1'
    bodies = [body % (number, b"r" * 10**6, number) for number in range(1, 50)]
    return with_segment(frames(*(b'%b,"crc":"%08x"}\n' % (one, zlib.crc32(one)) for one in bodies)), 49)


def _dropped_bomb(_good: Path) -> bytes:
    """A journal of 95,000 dropped segments."""
    drops = (
        {
            "op": "drop",
            "path": f"2026/11/16/sample-140000-{1 + n}.jsonl.zst",
            "bytes": 1,
            "reason": "max_bytes",
        }
        for n in range(95_000)
    )
    return _with_journal(b"".join(_chained(drops)))


def _missing_bomb(_good: Path) -> bytes:
    """A journal of 95,000 segments that are not there."""
    seals = (
        {"op": "seal", "path": f"2026/11/16/sample-140000-{1 + n}.jsonl.zst", "bytes": 1, "first_seq": n}
        for n in range(95_000)
    )
    return _with_journal(b"".join(_chained(seals)))


def _long_line(_good: Path) -> bytes:
    return _with_journal(b'{"op":"seal","path":"' + b"a" * (50 * 2**20))


def _manifest_bomb(good: Path) -> bytes:
    """A manifest of empty lines."""
    return good.read_bytes()[:1024] + member(bag.MANIFEST, b"\n" * (20 * 2**20 - 1)) + bag.END


def _listed_bomb(good: Path) -> bytes:
    """A manifest of as many files as fit."""
    lines = b"".join(b"%064x  data/%x\n" % (number, number) for number in range(270_000))
    return good.read_bytes()[:1024] + member(bag.MANIFEST, lines) + bag.END


def _strings_bomb(good: Path) -> bytes:
    """A description with four million different names."""
    left_out = b",".join(b'"%x"' % number for number in range(1_700_000))
    content = b'{"format":1,"archive":"a","head":"","left_out":[%b]}' % left_out
    return good.read_bytes()[:1024] + member(bag.BUNDLE, content) + bag.END


def _records_bomb(_good: Path, boottime: Callable[[int], int] = lambda number: number) -> bytes:
    """Two hundred thousand records of the smallest kind in one segment that says it has one."""

    def record(number: int) -> bytes:
        body = b'{"time":"2026-11-16T14:00:00.000000Z","seq":%d,"run":"r","boot":"b","boottime":%d' % (
            number,
            boottime(number),
        )
        return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))

    parts = (b"".join(map(record, range(first, first + 50_000))) for first in range(1, 200_000, 50_000))
    return with_segment(frames(*parts), 1)


def _gaps_bomb(good: Path) -> bytes:
    """A gap before every other of as many records."""
    return _records_bomb(good, lambda number: number * 10**9 + number % 2 * 10**12)


def _repeats_bomb(_good: Path) -> bytes:
    """The same record over and over."""
    return with_segment(frames(*([line(b"") * 100_000] * 3)), 1)


def _bad_records_bomb(_good: Path) -> bytes:
    """Lines without a stamp, each with a right checksum."""
    body = b'{"time":1'
    bad = b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))
    return with_segment(frames(*([bad * 100_000] * 3)), 300_000)


def _record_bomb(good: Path) -> bytes:
    files = b'"files":[' + b"[]," * 5_000_000 + b"[]]"
    content = (
        b'{"format":1,"archive":"a","head":"","left_out":[' + b'"",' * 4_000_000 + b'""],' + files + b"}"
    )
    return good.read_bytes()[:1024] + member("bundle.json", content) + bag.END


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
        files = {"bagit.txt": bag.DECLARATION, "data/hello.txt": b"hello", "manifest-sha256.txt": sums}
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
    "merge_bomb": _merge_bomb,
    "merges_bomb": _merges_bomb,
    "reasons_bomb": _reasons_bomb,
    "runs_bomb": _runs_bomb,
    "dropped_bomb": _dropped_bomb,
    "missing_bomb": _missing_bomb,
    "long_line": _long_line,
    "manifest_bomb": _manifest_bomb,
    "listed_bomb": _listed_bomb,
    "strings_bomb": _strings_bomb,
    "records_bomb": _records_bomb,
    "gaps_bomb": _gaps_bomb,
    "repeats_bomb": _repeats_bomb,
    "bad_records_bomb": _bad_records_bomb,
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
