"""Records of many archives and bundles, archive by archive, each once: for exports that are no tables."""

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from vmsonar_archive.read.findings import Code, Finding
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Sample, Stamp, SysInfo
from vmsonar_archive.records.sets import RecordSet
from vmsonar_archive.system.errors import VmsonarError

from vmsonar_inspect.tables.where import Origin

Record = TypeVar("Record", Sample, Stamp, SysInfo)


def file_name(host: str) -> str:
    """A host name made safe as a file name."""
    return (
        "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in host).lstrip(".") or "_"
    )


def by_archive(origins: Iterable[Origin], findings: list[Finding]) -> dict[str, list[Path]]:
    """The paths of each archive; what cannot be opened is found."""
    groups: dict[str, list[Path]] = {}
    for origin in origins:
        try:
            with open_archive(origin.path) as archive:
                groups.setdefault(archive.identity.archive, []).append(origin.path)
                if (trouble := archive.source.trouble()) is not None:
                    findings.append(Finding.of(Code.CORRUPT, origin.place, trouble))
        except VmsonarError as error:
            findings.append(Finding.of(Code.CORRUPT, origin.place, str(error)))
    return groups


def each_once(streams: Iterable[Iterator[Record]]) -> Iterator[Record]:
    """The records of overlapping archives in order, each once."""
    seen = RecordSet()
    return filter(seen.add, heapq.merge(*streams, key=lambda record: record.seq))
