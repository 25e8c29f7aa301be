"""The samples of one archive one by one, forwards and backwards, while the recorder goes on writing."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.format.layout import SAMPLE
from vmsonar_archive.format.lines import decode_sample
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import ContainerInfoRow, JobInfoRow, ProcessInfoRow, Sample

#: The fields that name a row of each kind; its info row has the same.
KEYS = {"job": ("pgid", "start_ticks"), "process": ("pid", "start_ticks"), "container": ("container_id",)}


class _Infos(msgspec.Struct):
    """What a sample says of names; the rest is not decoded."""

    job_info: list[JobInfoRow] = []
    process_info: list[ProcessInfoRow] = []
    container_info: list[ContainerInfoRow] = []


#: Where a sample lies: its segment, the begin of its frame, its number there, and how many lines there were.
Place = tuple[str, int, int, int]


class Reel:
    """Samples by number, the newest last. Only the last segment is looked at until somebody steps back before it.

    A frame holds at most 60 samples, so that a step and a look at what is new read no more than that.
    """

    def __init__(self, path: Path) -> None:
        self._archive = open_archive(path)
        self.close = self._archive.close
        self._places: list[Place] = []
        self._loaded: list[str] = []
        self._lines = lru_cache(maxsize=3)(self._read_lines)
        #: What does not change, by kind and key.
        self.infos: dict[tuple[Any, ...], Any] = {}
        self.refresh()

    def __len__(self) -> int:
        return len(self._places)

    def sample(self, number: int) -> Sample:
        segment, offset, line, known = self._places[number]
        return decode_sample(self._lines(segment, offset, known)[line])

    def refresh(self) -> None:
        """Takes up what was recorded since: the rest of the last segment, and a new one."""
        for path in [segment.path for segment in self._archive.segments(SAMPLE)[-2:]]:
            if path in self._loaded[-1:]:
                offset = self._places[-1][1] if self._places and self._places[-1][0] == path else 0
                while self._places and self._places[-1][:2] == (path, offset):
                    self._places.pop()
                self._places += self._index(path, offset)
            elif not self._loaded or path > self._loaded[-1]:
                self._loaded.append(path)
                self._places += self._index(path, 0)

    def reach_back(self) -> int:
        """Takes up the segment before the first; returns how many samples that added."""
        before = [each.path for each in self._archive.segments(SAMPLE) if [each.path] < self._loaded[:1]]
        found = self._index(before[-1], 0) if before else []
        self._loaded = before[-1:] + self._loaded
        self._places = found + self._places
        return len(found)

    def _index(self, path: str, offset: int) -> list[Place]:
        places = []
        with self._archive.source.open(path) as stream:
            stream.seek(offset)
            for found in read_frames(stream):
                for number, line in enumerate(found.lines):
                    self._learn(msgspec.json.decode(line, type=_Infos))
                    places.append((path, offset + found.frame.offset, number, len(found.lines)))
        return places

    def _learn(self, infos: _Infos) -> None:
        for kind, names in KEYS.items():
            for row in getattr(infos, f"{kind}_info"):
                self.infos[(kind, *(getattr(row, name) for name in names))] = row

    def _read_lines(self, path: str, offset: int, _known: int) -> list[bytes]:
        with self._archive.source.open(path) as stream:
            stream.seek(offset)
            return next(read_frames(stream)).lines
