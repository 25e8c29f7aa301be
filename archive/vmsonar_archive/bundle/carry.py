"""The info rows that a cut segment needs: said before the cut, about what is seen after it."""

from collections.abc import Callable, Iterable

import msgspec

from vmsonar_archive.errors import NOT_JSON
from vmsonar_archive.records import Stamp


class _Process(msgspec.Struct):
    pid: int
    start_ticks: int | None = None
    container_id: str | None = None

    def key(self) -> object:
        return "process_info", self.pid, self.start_ticks


class _Job(msgspec.Struct):
    pgid: int
    start_ticks: int
    container_id: str | None = None

    def key(self) -> object:
        return "job_info", self.pgid, self.start_ticks


class _Container(msgspec.Struct):
    container_id: str

    def key(self) -> object:
        return "container_info", self.container_id


class _Seen(msgspec.Struct):
    """Whom the rows of a sample are about."""

    process: list[_Process] = []
    gpu_process: list[_Process] = []
    job: list[_Job] = []
    container: list[_Container] = []


class _Infos(msgspec.Struct):
    process_info: list[msgspec.Raw] = []
    job_info: list[msgspec.Raw] = []
    container_info: list[msgspec.Raw] = []


_TYPES: dict[str, type[_Process] | type[_Job] | type[_Container]] = {
    "process_info": _Process,
    "job_info": _Job,
    "container_info": _Container,
}


class Carried:
    """Collects info rows of samples that go and keeps those that samples which stay refer to."""

    def __init__(self) -> None:
        self._rows: dict[object, tuple[str, bytes, str | None]] = {}
        self._seen: set[object] = set()
        self._in_first: set[object] | None = None

    def drop(self, line: bytes) -> None:
        """Takes note of a sample that lies before the cut."""
        for kind, key, raw, container in _infos(line):
            self._rows[key] = kind, raw, container

    def keep(self, line: bytes) -> None:
        """Takes note of a sample that stays."""
        if self._in_first is None:
            self._in_first = {key for _, key, _, _ in _infos(line)}
        try:
            seen = msgspec.json.decode(line, type=_Seen)
        except NOT_JSON:
            return
        for rows in (seen.process, seen.gpu_process, seen.job, seen.container):
            self._seen.update(row.key() for row in rows)

    def rows(self) -> dict[str, list[bytes]]:
        """The rows to add to the first sample that stays, by kind."""
        needed = {key for key in self._rows if key in self._seen}
        needed |= {("container_info", self._rows[key][2]) for key in needed if self._rows[key][2]}
        found: dict[str, list[bytes]] = {}
        for key, (kind, raw, _) in self._rows.items():
            if key in needed and key not in (self._in_first or ()):
                found.setdefault(kind, []).append(raw)
        return found


def _infos(line: bytes) -> Iterable[tuple[str, object, bytes, str | None]]:
    try:
        infos = msgspec.json.decode(line, type=_Infos)
        for kind, struct in _TYPES.items():
            for raw in getattr(infos, kind):
                row = msgspec.json.decode(raw, type=struct)
                yield kind, row.key(), bytes(raw), row.container_id
    except NOT_JSON:
        return


def collect(lines: Iterable[tuple[bytes, Stamp]], keeps: Callable[[Stamp], bool]) -> dict[str, list[bytes]]:
    """What the first sample of a cut segment has to be given."""
    carried = Carried()
    begun = False
    for line, stamp in lines:
        if keeps(stamp):
            carried.keep(line)
            begun = True
        elif not begun:
            carried.drop(line)
    return carried.rows()
