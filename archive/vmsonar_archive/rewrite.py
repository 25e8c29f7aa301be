"""Segments written anew from segments: torn ones closed, finished ones compressed better, small ones merged.

Run as `python -m vmsonar_archive.rewrite PARENT LEVEL TARGET SOURCE…` it is the low-priority child of the writer
with process id PARENT: it writes TARGET, which must not exist, and prints what the journal needs to know. It touches
nothing else, and dies with its parent.
"""

import hashlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vmsonar_archive import files
from vmsonar_archive.frames import FrameWriter, read_frames, scan_frames
from vmsonar_archive.lines import BadLine, decode_stamp
from vmsonar_archive.records import Stamp
from vmsonar_archive.segment import Sealed, Tally

_PR_SET_PDEATHSIG = 1


class _Output:
    """A file that is hashed as it is written."""

    def __init__(self, path: Path) -> None:
        self._file = files.create(path)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        files.write_all(self._file.fileno(), bytes(data))
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> str:
        os.fsync(self._file.fileno())
        return self._hash.hexdigest()

    def close(self) -> None:
        self._file.close()


def rewrite(sources: Iterable[BinaryIO], target: Path, path: str, level: int) -> Sealed:
    """Writes all whole records of the sources into a new segment, in closed frames, each record once."""
    frames, tally = FrameWriter(level, flush=False), Tally()
    with closing(_Output(target)) as output:
        for source in sources:
            for found in read_frames(source):
                for line, stamp in stamped(found.lines):
                    if tally.last_seq is None or stamp.seq > tally.last_seq:
                        output.write(frames.add((line, b"\n")))
                        tally.add(stamp.time, stamp.seq)
        output.write(frames.end())
        return tally.sealed(path, output.size, output.finish())


def stamped(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Stamp]]:
    """Lines with their stamps; what has none is no record of ours."""
    for line in lines:
        with suppress(BadLine):
            yield line, decode_stamp(line)


def examine(source: BinaryIO, path: str) -> tuple[Sealed, bool]:
    """What is in a segment as it lies there, and whether it merely lacks its end."""
    digest, size, tally = hashlib.sha256(), 0, Tally()
    torn = damaged = False

    def take(line: memoryview) -> None:
        with suppress(BadLine):
            stamp = decode_stamp(line)
            tally.add(stamp.time, stamp.seq)

    for found in scan_frames(source, take):
        torn = not found.intact and (found.damage is None or found.damage.torn)
        damaged = damaged or (found.damage is not None and not found.damage.torn)
    source.seek(0)
    while chunk := source.read(1024 * 1024):
        digest.update(chunk)
        size += len(chunk)
    return tally.sealed(path, size, digest.hexdigest(), damaged), torn


def main(arguments: list[str]) -> None:
    """The child's entry: see the module's docstring."""
    parent, level, target, *sources = arguments
    _die_with(int(parent))
    os.nice(19)
    streams = [open(source, "rb") for source in sources]  # noqa: SIM115 - the process ends right after
    sealed = rewrite(streams, Path(target), "", int(level))
    sys.stdout.buffer.write(msgspec.json.encode(sealed))


def _die_with(parent: int) -> None:
    """prctl(2): an orphan would write beside the files of the next writer."""
    # Here, because the recorder imports this module and has no use for it.
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
