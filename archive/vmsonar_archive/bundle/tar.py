"""One canonical tar header per file (POSIX.1-1988 ustar): name and size decide every one of its 512 bytes."""

import re
from dataclasses import dataclass

BLOCK = 512
#: Two empty blocks, and nothing after them.
END = bytes(2 * BLOCK)
#: What eleven octal digits can say.
MAX_SIZE = 8**11 - 1
#: 1980-01-01: the time of every member, because the time of copying is nobody's business.
MTIME = 315532800

_MAX_FOLDER = 155
_MAX_NAME = 100
_PART = r"[A-Za-z0-9_+=-](?:[A-Za-z0-9._+=-])*"
_FOLDER = re.compile(_PART)
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TYPES = {
    0: "an old-style member",
    ord("1"): "a hard link",
    ord("2"): "a symbolic link",
    ord("3"): "a character device",
    ord("4"): "a block device",
    ord("5"): "a folder",
    ord("6"): "a FIFO",
    ord("S"): "a sparse file",
    ord("x"): "an extended header",
    ord("g"): "an extended header",
    ord("L"): "a long name",
    ord("K"): "a long link",
}


class BadHeader(ValueError):
    """A block that is not a header as we write them."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says."""

    folder: str
    name: str
    size: int


def is_folder_name(name: str) -> bool:
    """Whether the bag's folder can be called that."""
    return len(name) <= _MAX_FOLDER and _FOLDER.fullmatch(name) is not None


def encode(header: Header) -> bytes:
    """The 512 bytes of a header."""
    if not is_folder_name(header.folder) or not is_member_name(header.name):
        raise ValueError(f"{header.folder}/{header.name} cannot be a name in a bundle")
    if not 0 <= header.size <= MAX_SIZE:
        raise ValueError(f"{header.name} has {header.size} bytes, a bundle takes up to {MAX_SIZE}")
    fields = b"".join(
        (
            header.name.encode().ljust(100, b"\0"),
            b"0000644\0",
            b"0000000\0",
            b"0000000\0",
            b"%011o\0" % header.size,
            b"%011o\0" % MTIME,
            b" " * 8,
            b"0",
            bytes(100),
            b"ustar\x0000",
            bytes(64),
            b"0000000\0" * 2,
            header.folder.encode().ljust(155, b"\0"),
            bytes(12),
        )
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def is_member_name(name: str) -> bool:
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def decode(block: bytes) -> Header:
    """Reads a header; whatever differs from what encode() would write is refused."""
    if block[257:262] != b"ustar":
        raise BadHeader("not a tar header")
    kind = block[156]
    if kind != ord("0"):
        raise BadHeader(f"{_shown(block)} is {_TYPES.get(kind, 'of an unknown type')}, not a regular file")
    try:
        folder = block[345:500].rstrip(b"\0").decode("ascii")
        name = block[:100].rstrip(b"\0").decode("ascii")
        header = Header(folder, name, int(block[124:135], 8))
        canonical = encode(header)
    except ValueError:
        raise BadHeader(f"{_shown(block)} is not a header of a bundle") from None
    if canonical != block:
        raise BadHeader(f"the header of {name} is not canonical")
    return header


def _shown(block: bytes) -> str:
    """A name fit for one line, however it was meant."""
    folder, name = block[345:500].split(b"\0")[0], block[:100].split(b"\0")[0]
    full = folder + b"/" + name if folder else name
    return repr(full[:200].decode("ascii", "replace"))


def padding(size: int) -> int:
    """How many zero bytes follow so many bytes of content."""
    return -size % BLOCK
