"""The samples of one archive one by one, forwards and backwards, while the recorder goes on writing."""

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from io import UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
from vmsonar_archive.format.frames import Lines, read_frames
from vmsonar_archive.format.layout import SAMPLE
from vmsonar_archive.format.lines import decode_sample
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import ContainerInfoRow, JobInfoRow, ProcessInfoRow, Sample

#: The fields that name a row of each kind; its info row has the same.
KEYS = {"job": ("pgid", "start_ticks"), "process": ("pid", "start_ticks"), "container": ("container_id",)}
Infos = dict[tuple[Any, ...], Any]


class _Line(msgspec.Struct):
    """The number of a sample and what it says of names; the rest is not decoded."""

    seq: int
    job_info: list[JobInfoRow] = []
    process_info: list[ProcessInfoRow] = []
    container_info: list[ContainerInfoRow] = []


class _Place(NamedTuple):
    """Where a sample lies: its segment, the begin of its frame, its number there, and how many lines there were."""

    seq: int
    path: str
    offset: int
    line: int
    known: int


class _Moved(Exception):
    """A segment was merged, packed anew or dropped since it was looked at."""


#: Segments of which the names are kept: each has its own, because a segment tells them all anew.
_NAMED = 3
_ATTEMPTS = 3


class Reel:
    """Samples by number, the newest last. Only the last segments are looked at until somebody steps back before them.

    A frame holds at most 60 samples, so that a step and a look at what is new read no more than that.
    """

    def __init__(self, path: Path) -> None:
        self._archive = open_archive(path)
        self.close = self._archive.close
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._places: list[_Place] = []
        self._loaded: list[str] = []
        #: The inode of each segment: what takes its place has another one.
        self._inodes: dict[str, int] = {}
        self._infos: dict[str, Infos] = {}
        self._lines = lru_cache(maxsize=3)(self._read_lines)

    def __len__(self) -> int:
        return len(self._places)

    def seq(self, number: int) -> int:
        return self._places[number].seq

    def number(self, seq: int) -> int:
        """Where a sample is now, or the next that is left."""
        return bisect_left(self._places, seq, key=lambda place: place.seq)

    def sample(self, seq: int) -> tuple[Sample, Infos] | None:
        """A sample, or the next that is left, and the names of what is in it; None while it cannot be read."""
        for _ in range(_ATTEMPTS):
            if (number := self.number(seq)) == len(self._places):
                return None
            _, path, offset, line, known = self._places[number]
            try:
                if path not in self._infos:
                    list(self._index(path, 0))
                return decode_sample(self._lines(path, offset, known)[line]), self._infos[path]
            except (_Moved, IndexError):
                self._find_anew()
        return None

    def refresh(self) -> None:
        """Takes up what was recorded since; all anew where something was moved."""
        try:
            self._take_up()
        except _Moved:
            self._find_anew()

    def _take_up(self) -> None:
        """The rest of the last segment, and new ones."""
        paths = [segment.path for segment in self._archive.segments(SAMPLE)]
        last = self._loaded[-1] if self._loaded else None
        if last is not None and last not in paths:
            raise _Moved(last)
        for path in paths[-2:] if last is None else paths[paths.index(last) :]:
            offset = self._places[-1].offset if self._places and self._places[-1].path == path else 0
            found = list(self._index(path, offset))
            while self._places and self._places[-1][1:3] == (path, offset):
                self._places.pop()
            self._places += found
            if path != last:
                self._loaded.append(path)

    def reach_back(self) -> int:
        """Takes up what lies before the first sample; returns how many samples that added."""
        paths = [each.path for each in self._archive.segments(SAMPLE) if [each.path] < self._loaded[:1]]
        for path in reversed(paths):
            with suppress(_Moved):
                found = list(self._index(path, 0))
                self._loaded.insert(0, path)
                self._places = found + self._places
                if found:
                    return len(found)
        return 0

    def _find_anew(self) -> None:
        """Looks at all that was looked at before, wherever it lies by now."""
        oldest = self._places[0].seq if self._places else 0
        self._forget()
        with suppress(_Moved):
            self._take_up()
        while self._places and self._places[0].seq > oldest and self.reach_back():
            pass

    def _index(self, path: str, offset: int) -> Iterator[_Place]:
        infos = self._infos.setdefault(path, {})
        for older in [each for each in self._infos if each not in (path, *self._loaded[-1:])][: -_NAMED + 1]:
            del self._infos[older]
        for begin, found in self._frames(path, offset):
            for number, line in enumerate(found.lines):
                with suppress(msgspec.DecodeError):
                    told = msgspec.json.decode(line, type=_Line)
                    _learn(told, infos)
                    yield _Place(told.seq, path, begin, number, len(found.lines))

    def _read_lines(self, path: str, offset: int, _known: int) -> list[bytes]:
        return next((found.lines for _, found in self._frames(path, offset)), [])

    def _frames(self, path: str, offset: int) -> Iterator[tuple[int, Lines]]:
        try:
            with self._archive.source.open(path) as stream:
                inode = _inode(stream)
                if self._inodes.setdefault(path, inode) != inode:
                    raise _Moved(path)
                stream.seek(offset)
                for found in read_frames(stream):
                    yield offset + found.frame.offset, found
        except OSError:
            raise _Moved(path) from None


def _inode(stream: BinaryIO) -> int:
    """Nothing in a bundle is ever replaced."""
    try:
        return os.fstat(stream.fileno()).st_ino
    except UnsupportedOperation:
        return 0


def _learn(told: _Line, infos: Infos) -> None:
    for kind, names in KEYS.items():
        for row in getattr(told, f"{kind}_info"):
            infos[(kind, *(getattr(row, name) for name in names))] = row
