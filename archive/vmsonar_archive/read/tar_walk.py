"""Walks a tar file header by header, never unpacking: hostile input costs bounded memory and time."""

import os
from dataclasses import dataclass, field
from io import RawIOBase
from typing import cast

from vmsonar_archive.format import bag
from vmsonar_archive.format.bag import BLOCK, BadHeader

# More than ten years of hours; what a hostile file can make us hold is bounded by it.
MAX_MEMBERS = 100_000
# After so many damaged places the rest is given up.
_MAX_PROBLEMS = 50
# Where the first member may be looked for in a file whose beginning is damaged.
_FIRST_WITHIN = 1024 * 1024
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside the tar file."""

    offset: int
    #: Bytes that are there: fewer than the header says only when the tar file is cut.
    size: int


@dataclass(slots=True)
class Walked:
    """What a tar file turned out to hold, in its order."""

    folder: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    #: Places that differ from a canonical tar file.
    problems: list[tuple[int, str]] = field(default_factory=list)
    #: It stops before its end.
    cut: bool = False


class Slice(RawIOBase):
    """A part of an open file as a file of its own; any number of them share one descriptor."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor = descriptor
        self._begin = offset
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size < 0 else min(size, left)
        data = os.pread(self._descriptor, wanted, self._begin + self._position) if wanted else b""
        self._position += len(data)
        return data


def walk(descriptor: int, size: int) -> Walked:
    """Every member that can be found, and every place that is not as it should be."""
    walked = Walked()
    position = 0
    last: tuple[int, str] = (-1, "")
    while True:
        block = os.pread(descriptor, BLOCK, position)
        if block == bytes(BLOCK):
            _check_end(descriptor, walked, position, size)
            return walked
        try:
            header = bag.decode_header(block) if len(block) == BLOCK else None
            if header is None:
                walked.cut = True
                walked.problems.append((position, "the bundle is cut short"))
                return walked
            last = _accept(walked, header, last)
        except BadHeader as error:
            walked.problems.append((position, str(error)))
            found = _next_header(descriptor, walked, position + BLOCK, size)
            if found is None:
                return walked
            position = found
            continue
        position += BLOCK
        walked.members[header.name] = Member(position, max(0, min(header.size, size - position)))
        position = _skip(descriptor, walked, header, position, size)


def _accept(walked: Walked, header: bag.Header, last: tuple[int, str]) -> tuple[int, str]:
    """Lets a member pass if it is the right one at this place."""
    place = bag.rank(header.name)
    if place is None:
        raise BadHeader(f"{header.name} is no part of a bundle")
    if walked.folder and header.folder != walked.folder:
        raise BadHeader(f"{header.name} lies in a second folder, {header.folder}")
    if header.name in walked.members:
        raise BadHeader(f"{header.name} is there twice")
    if len(walked.members) >= MAX_MEMBERS:
        raise BadHeader(f"more than {MAX_MEMBERS} members")
    walked.folder = header.folder
    if place < last:
        walked.problems.append((0, f"{header.name} is not in its place"))
    return max(place, last)


def _skip(descriptor: int, walked: Walked, header: bag.Header, position: int, size: int) -> int:
    """Moves behind a member's content and its padding, which must be zero."""
    position += header.size
    pad = bag.padding(header.size)
    if position > size:
        return position + pad
    found = os.pread(descriptor, pad, position) if pad else b""
    if found.strip(b"\0"):
        walked.problems.append((position, f"the padding behind {header.name} is not zero"))
    return position + pad


def _check_end(descriptor: int, walked: Walked, position: int, size: int) -> None:
    if size - position > len(bag.END):
        walked.problems.append((position + len(bag.END), "something follows the end of the bundle"))
    elif size - position < len(bag.END):
        walked.cut = True
        walked.problems.append((position, "the bundle is cut short"))
    elif os.pread(descriptor, len(bag.END), position) != bag.END:
        walked.problems.append((position, "the end of the bundle is not two empty blocks"))


def _next_header(descriptor: int, walked: Walked, position: int, size: int) -> int | None:
    """The next place that holds a header of this bundle, so that one damaged header does not cost the rest."""
    if len(walked.problems) > _MAX_PROBLEMS or len(walked.members) >= MAX_MEMBERS:
        return None
    limit = size if walked.members else min(size, _FIRST_WITHIN)
    while position < limit:
        chunk = os.pread(descriptor, _CHUNK, position)
        for begin in range(0, len(chunk) - BLOCK + 1, BLOCK):
            if chunk[begin + 257 : begin + 265] == b"ustar\x0000" and _is_ours(walked, chunk, begin):
                return position + begin
        position += max(len(chunk), BLOCK)
    return None


def _is_ours(walked: Walked, chunk: bytes, begin: int) -> bool:
    try:
        header = bag.decode_header(chunk[begin : begin + BLOCK])
    except BadHeader:
        return False
    known = bag.rank(header.name) is not None and header.name not in walked.members
    return known and walked.folder in ("", header.folder)
