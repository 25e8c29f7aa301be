"""What the newest sample of an archive shows, as metrics: follows the archive and reads nothing twice."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from vmsonar_archive.dialect.exposition import classic, openmetrics
from vmsonar_archive.dialect.places import PLACES
from vmsonar_archive.dialect.subjects import HOLD_SECONDS, Described, Observed, Observer
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.format.layout import RECORD_KINDS, SAMPLE, SYSINFO
from vmsonar_archive.format.lines import BadLine, decode_sysinfo
from vmsonar_archive.records.sets import Taken
from vmsonar_archive.system.errors import NOT_JSON

from vmsonar.forward.tail import LedgerView, Record, Tail

#: Samples before the newest that are looked at in the beginning: what changed lately decides who is shown.
FIRST = 6
# A recorder that is this late, beside three intervals, does not run: what it said last is no longer true.
_PATIENCE_SECONDS = 60.0
_decode = msgspec.json.Decoder(Observed).decode
_decode_infos = msgspec.json.Decoder(Described).decode


class Present:
    """Keeps an Observer at the newest sample; its texts may be asked for from other threads."""

    def __init__(self, root: Path, places: int = PLACES) -> None:
        self._root = root
        self._places = places
        self._lock = threading.Lock()
        self._texts: dict[bool, bytes] = {}
        self._tails: dict[str, Tail] = {}
        self._archive: str | None = None
        self._observer = Observer(places, HOLD_SECONDS)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    def look(self) -> bool:
        """Takes in what is new; True if there is something else to show now. Raises VmsonarError and OSError."""
        archive = read_identity(self._root).archive
        with self._lock:
            if archive != self._archive:
                self._begin(archive)
            is_new = self._read()
            if self._fell_silent() or is_new:
                self._texts.clear()
                return True
            return False

    @property
    def is_fresh(self) -> bool:
        """Whether the recorder has written lately."""
        return "node" in self._observer.subjects

    def text(self, *, is_open: bool) -> bytes:
        """All there is to say, as OpenMetrics or in the classic format; empty before the first sample."""
        with self._lock:
            if not self._observer.subjects:
                return b""
            if is_open not in self._texts:
                form = openmetrics if is_open else classic
                self._texts[is_open] = form(self._observer.families())
            return self._texts[is_open]

    def _begin(self, archive: str) -> None:
        """Starts with the newest segment of each kind: it describes all that is in it."""
        self.close()
        self._observer = Observer(self._places, HOLD_SECONDS)
        journal = LedgerView(self._root)
        for kind in RECORD_KINDS:
            tail = Tail(self._root, kind, journal)
            names = tail.names_up_to()
            tail.close()
            before = names[-1].first_seq - 1 if names else 0
            self._tails[kind] = Tail(self._root, kind, journal, Taken(up_to=before))
        self._archive = archive

    def _read(self) -> bool:
        """Lets the observer see every new record; of very many samples only the last ones whole."""
        for record in self._new(SYSINFO):
            with suppress(BadLine):
                self._observer.learn_machine(decode_sysinfo(record.line))
        last: deque[Record] = deque()
        for record in self._new(SAMPLE):
            last.append(record)
            if len(last) > FIRST:
                with suppress(*NOT_JSON):
                    self._observer.learn(_decode_infos(last.popleft().line))
        for record in last:
            with suppress(*NOT_JSON):
                self._observer.observe(_decode(record.line))
        return bool(last)

    def _new(self, kind: str) -> Iterator[Record]:
        found = True
        while found:
            found = False
            for record in self._tails[kind].read():
                found = True
                yield record

    def _fell_silent(self) -> bool:
        """Ends every series where the recorder no longer runs, but for the one that tells since when."""
        machine, subjects = self._observer.machine, self._observer.subjects
        interval = (machine.interval or 0) / 1000 if machine else 0.0
        late = time.time() - self._observer.time / 1e9
        if not self.is_fresh or late < 3 * interval + _PATIENCE_SECONDS:
            return False
        self._observer.subjects = {"view": subjects["view"]}
        return True
