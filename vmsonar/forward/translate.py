"""From a line of the archive to the message that is sent, in one of two dialects."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec
from vmsonar_archive.dialect.known import HostName, Infos, Known
from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.layout import SYSINFO
from vmsonar_archive.lines import BadLine, decode_sample, decode_sysinfo, record_line
from vmsonar_archive.records import KINDS, Sample, Stamp, SysInfo

from vmsonar.forward.split import split_native, split_sonar
from vmsonar.forward.tail import Record

if TYPE_CHECKING:
    from vmsonar_archive.bundle.redact import Redactor

_decode_infos = msgspec.json.Decoder(Infos).decode


class Selection:
    """Which kinds are sent; none given means all."""

    def __init__(self, kinds: Collection[str] = ()) -> None:
        wanted = set(kinds) or {*KINDS, SYSINFO}
        self.sysinfo = SYSINFO in wanted
        self.samples = bool(wanted - {SYSINFO})
        self._left_out: dict[str, list[msgspec.Struct]] = {kind: [] for kind in KINDS if kind not in wanted}

    @property
    def is_partial(self) -> bool:
        return bool(self._left_out)

    def of(self, sample: Sample) -> Sample:
        """The sample with only the rows that are sent."""
        return msgspec.structs.replace(sample, **self._left_out) if self._left_out else sample


class Translator(ABC):
    """Fed with every record in order: those that were sent before only teach it."""

    def __init__(self, known: Known, selection: Selection, redactor: "Redactor | None") -> None:
        self.known = known
        self._selection = selection
        self._redactor = redactor

    @abstractmethod
    def learn(self, record: Record) -> None:
        """Takes in a record without sending it."""

    @abstractmethod
    def translate(self, record: Record) -> bytes | None:
        """The value of the message; None when nothing of the record is sent. Raises BadLine."""

    @abstractmethod
    def node_at(self, seq: int) -> str:
        """The key of the message."""

    @abstractmethod
    def split(self, value: bytes, limit: int) -> list[bytes]:
        """The same message in several by job; in one where it cannot be divided."""

    def headers(self, archive: str, stamp: Stamp, head: str) -> dict[str, str]:
        """The record's id, and the journal's head where that does not tell whose it is."""
        hide = self._redactor
        if hide is None:
            return {
                "archive": archive,
                "run": stamp.run,
                "boot": stamp.boot,
                "seq": str(stamp.seq),
                "head": head,
            }
        names = {"archive": archive, "run": stamp.run, "boot": stamp.boot}
        return {**{name: hide.identifier(value) for name, value in names.items()}, "seq": str(stamp.seq)}

    def _sysinfo(self, line: bytes) -> SysInfo:
        info = decode_sysinfo(line)
        return self._redactor.sysinfo(info) if self._redactor else info

    def _sample(self, line: bytes) -> Sample:
        sample = decode_sample(line)
        return self._redactor.sample(sample) if self._redactor else sample


class SonarTranslator(Translator):
    """Messages that consumers of Sonar's format take unchanged."""

    def __init__(
        self,
        sonar: Sonar,
        selection: Selection,
        redactor: "Redactor | None" = None,
    ) -> None:
        super().__init__(sonar.known, selection, redactor)
        self._sonar = sonar
        self._last_passed: bytes | None = None

    def node_at(self, seq: int) -> str:
        return self._sonar.node_at(seq)

    def split(self, value: bytes, limit: int) -> list[bytes]:
        return split_sonar(value, limit)

    def learn(self, record: Record) -> None:
        if record.kind == SYSINFO:
            self.known.learn_machine(self._sysinfo(record.line))
            return
        if self._redactor is not None:
            self._sonar.pass_over(self._sample(record.line))
            return
        try:
            self.known.learn_infos(_decode_infos(record.line))
        except msgspec.MsgspecError as error:
            raise BadLine(str(error)) from None
        # CPU time is needed of the last one only.
        self._last_passed = record.line

    def translate(self, record: Record) -> bytes | None:
        if record.kind == SYSINFO:
            attributes = self._sonar.sysinfo(self._sysinfo(record.line))
            return envelope("sysinfo", attributes) if self._selection.sysinfo else None
        if self._last_passed is not None:
            self.known.learn_ticks(decode_sample(self._last_passed))
            self._last_passed = None
        sample = self._sample(record.line)
        if not self._selection.samples:
            self._sonar.pass_over(sample)
            return None
        return envelope("sample", self._sonar.sample(sample, self._selection.of(sample)))


class NativeTranslator(Translator):
    """Our records as they are."""

    def __init__(
        self,
        node: str,
        host_name: HostName,
        selection: Selection,
        redactor: "Redactor | None" = None,
        known: Known | None = None,
    ) -> None:
        super().__init__(known or Known(), selection, redactor)
        self._node = node
        self._host_name: HostName = host_name

    def node_at(self, seq: int) -> str:
        return self.known.machine_at(seq).name(self._host_name) or self._node

    def split(self, value: bytes, limit: int) -> list[bytes]:
        return split_native(value, limit)

    def learn(self, record: Record) -> None:
        if record.kind == SYSINFO:
            self.known.learn_machine(self._sysinfo(record.line))

    def translate(self, record: Record) -> bytes | None:
        if record.kind == SYSINFO:
            info = self._sysinfo(record.line)
            self.known.learn_machine(info)
            if not self._selection.sysinfo:
                return None
            return record.line if self._redactor is None else record_line(info)[:-1]
        if not self._selection.samples:
            return None
        if self._redactor is None and not self._selection.is_partial:
            return record.line
        return record_line(self._selection.of(self._sample(record.line)))[:-1]
