"""Rewrites segments: closes torn ones, compresses finished ones better, merges small ones.

Run as `python -m vmsonar_archive.write.rewrite PARENT LEVEL ROOT TARGET SOURCE…` it is the low-priority child of the
writer with process id PARENT: it writes TARGET, which must not exist, and prints what the journal needs to know. It
touches nothing else, and dies with its parent.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from vmsonar_archive.format.frames import FrameWriter, read_frames, scan_frames
from vmsonar_archive.format.journal import SegmentFacts, Tally
from vmsonar_archive.format.lines import BadLine, decode_stamp
from vmsonar_archive.records import Stamp
from vmsonar_archive.records.sets import RecordSet
from vmsonar_archive.system import files
from vmsonar_archive.write.segment import SegmentFile

_PR_SET_PDEATHSIG = 1


def rewrite(
    sources: Iterable[BinaryIO], target: Path, path: str, level: int, seen: RecordSet | None = None
) -> SegmentFacts:
    """Writes all whole records of the sources into a new segment, in closed frames, each record once.

    Records seen before, in other segments, are passed over.
    """
    with closing(SegmentFile(target, FrameWriter(level, flush=False))) as output:
        tally = output.tally
        for found in chain.from_iterable(map(read_frames, sources)):
            for line, stamp in stamped(found.lines):
                rises = tally.last_seq is None or stamp.seq > tally.last_seq
                if rises and (seen is None or seen.add(stamp)):
                    output.append((line, b"\n"), stamp.time, stamp.seq)
        sealed = output.end(path)
        os.fsync(output.file.fileno())
        return sealed


def stamped(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Stamp]]:
    """Lines with their stamps; what has none is no record of ours."""
    for line in lines:
        with suppress(BadLine):
            yield line, decode_stamp(line)


def examine(source: BinaryIO, path: str) -> tuple[SegmentFacts, bool]:
    """What is in a segment as it lies there, and whether it merely lacks its end."""
    tally = Tally()
    torn = damaged = False

    def take(line: memoryview) -> None:
        with suppress(BadLine):
            stamp = decode_stamp(line)
            tally.add(stamp.time, stamp.seq)

    for found in scan_frames(source, take):
        torn = not found.intact and (found.damage is None or found.damage.torn)
        damaged = damaged or (found.damage is not None and not found.damage.torn)
    source.seek(0)
    sha256 = files.sha256_of(source)
    return tally.facts(path, source.tell(), sha256, damaged), torn


def main(arguments: list[str]) -> None:
    """The child's entry: see the module's docstring."""
    parent, level, root, target, *sources = arguments
    _die_with(int(parent))
    os.nice(19)
    streams = [files.open_inside(Path(root), source) for source in sources]
    sealed = rewrite(streams, Path(root, target), "", int(level))
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
