"""One record is one line of JSON that ends in its own CRC-32, so that a torn or altered line shows."""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from vmsonar_archive.records import KINDS, Sample, Stamp, SysInfo
from vmsonar_archive.records.ids import told
from vmsonar_archive.system.errors import NOT_JSON

# It bounds what a hostile file can make us hold.
MAX_LINE = 16 * 1024 * 1024
# The same for what a line can be blown up to when it is decoded; the figures fit 20,000 processes.
_MAX_OBJECTS = 200_000
_MAX_VALUES = 1_000_000
HARMLESS = 256 * 1024

# About 50 KB of process rows.
_ROWS_PER_PIECE = 128

_TAIL = len(b',"crc":"01234567"}')
_STAMP = re.compile(
    rb'\{"time":"[^"\\]{20,40}","seq":\d{1,19},"run":"[0-9A-Za-z._:-]{0,64}","boot":"[0-9A-Za-z._:-]{0,64}","boottime":\d{1,19}(?=[,}])'
)
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}')

T = TypeVar("T")
#: A line as it is kept, or in the buffer into which it was decompressed.
Text = bytes | memoryview

encode_row = msgspec.json.Encoder().encode
_SAMPLE = msgspec.json.Decoder(Sample)
_SYSINFO = msgspec.json.Decoder(SysInfo)
_ANY_RECORD = msgspec.json.Decoder(Stamp)


class BadLine(ValueError):
    """A line that is not what was written."""


def finish(body: bytes) -> bytes:
    """Closes a JSON object, given without its last brace, with its checksum."""
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def sample_pieces(stamp: Stamp, rows: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
    """The line of one sample, joined from rows that were encoded before, in pieces of moderate size.

    A line of hundreds of kilobytes would be given back to the kernel and asked for again with every sample: the
    page faults cost as much as all the rest of appending (docs/benchmarks.md).
    """
    crc = 0
    for piece in _body_pieces(stamp, rows):
        crc = zlib.crc32(piece, crc)
        yield piece
    yield b',"crc":"%08x"}\n' % crc


def _body_pieces(stamp: Stamp, rows: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
    yield encode_row(stamp)[:-1]
    for kind in KINDS:
        encoded = rows.get(kind)
        if encoded:
            opening = b',"%b":[' % kind.encode()
            for first in range(0, len(encoded), _ROWS_PER_PIECE):
                yield opening + b",".join(encoded[first : first + _ROWS_PER_PIECE])
                opening = b","
            yield b"]"


def share_of_line(texts: Iterable[bytes]) -> float:
    """How much of what a reader takes as one line these parts of it fill."""
    size = objects = values = 0
    for text in texts:
        size += len(text) + 1
        objects += text.count(b"{") + text.count(b"[")
        values += text.count(b",") + 1
    return max(size / MAX_LINE, objects / _MAX_OBJECTS, values / _MAX_VALUES)


def sample_line(stamp: Stamp, rows: Mapping[str, Sequence[bytes]]) -> bytes:
    """The line of one sample as a whole."""
    return b"".join(sample_pieces(stamp, rows))


def record_line(record: Sample | SysInfo) -> bytes:
    """The line of a record given as a whole."""
    return finish(encode_row(record)[:-1])


def checked(line: bytes) -> bytes:
    """Returns the line if its checksum holds and it can be decoded without harm."""
    check_line(line)
    return line


def check_line(line: Text) -> None:
    """Raises BadLine unless the checksum of a line holds and it can be decoded without harm."""
    if not checksum_holds(line):
        raise BadLine("checksum differs")
    if len(line) >= HARMLESS:
        _refuse_bomb(bytes(line))


def checksum_holds(line: Text) -> bool | None:
    """Whether a line is what its checksum says; None for a line that ends in none."""
    match = _CRC.fullmatch(line, len(line) - _TAIL) if len(line) > _TAIL else None
    return None if match is None else zlib.crc32(memoryview(line)[:-_TAIL]) == int(match[1], 16)


def unchanged(content: bytes) -> bytes:
    """The content of a small file that ends in its own checksum; an earlier version's has none."""
    if checksum_holds(content.rstrip(b"\n")) is False:
        raise msgspec.ValidationError("its checksum differs")
    return content


def _refuse_bomb(line: bytes) -> None:
    """Bounds what decoding can cost: `{}` takes two bytes here and hundreds as a row."""
    if line.count(b"{") + line.count(b"[") > _MAX_OBJECTS or line.count(b",") > _MAX_VALUES:
        raise BadLine("far more values than a sample can have")


def decode_sample(line: Text) -> Sample:
    """The sample in a line whose checksum was checked; unknown fields and kinds are skipped."""
    return _decoded(_SAMPLE, line)


def decode_sysinfo(line: Text) -> SysInfo:
    """The sysinfo in a line whose checksum was checked."""
    return _decoded(_SYSINFO, line)


def decode_stamp(line: Text) -> Stamp:
    """When and by whom a line was written, whatever kind of record it holds."""
    # The stamp stands first in every line we write; the rest need not be parsed to read it.
    head = _STAMP.match(line)
    return _decoded(_ANY_RECORD, head[0] + b"}" if head else line)


def _decoded(decoder: msgspec.json.Decoder[T], line: Text) -> T:
    try:
        return decoder.decode(line)
    except NOT_JSON as error:
        raise BadLine(told(error)) from None
