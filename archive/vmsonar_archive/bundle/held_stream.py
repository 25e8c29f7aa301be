"""The whole records of a held segment as a stream, sealed or not."""

from typing import BinaryIO, cast

from vmsonar_archive.bundle.snapshot import Held
from vmsonar_archive.bundle.walk import Slice


def held_stream(held: Held) -> BinaryIO:
    """A new stream from the segment's first byte to the end of its last whole record."""
    size = held.live.length if held.live is not None else held.size
    return cast(BinaryIO, Slice(held.descriptor, 0, size))
