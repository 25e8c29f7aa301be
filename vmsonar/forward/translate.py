"""From a line of the archive to the message that is sent, in one of two dialects."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

import msgspec
from vmsonar_archive.dialect.known import HostName, Infos, Known
from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.layout import SYSINFO
from vmsonar_archive.lines import BadLine, decode_sample, decode_sysinfo, record_line
from vmsonar_archive.records import KINDS, Sample, SysInfo

from vmsonar.forward.split import split_native, split_sonar
from vmsonar.forward.tail import Record

Redaction = Callable[[Sample | SysInfo], Sample | SysInfo]

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

    def __init__(self, known: Known, selection: Selection, redact: Redaction | None) -> None:
        self.known = known
        self._selection = selection
        self._redact = redact

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

    def _sysinfo(self, line: bytes) -> SysInfo:
        info = decode_sysinfo(line)
        return self._redact(info) if self._redact else info  # type: ignore[return-value]

    def _sample(self, line: bytes) -> Sample:
        sample = decode_sample(line)
        return self._redact(sample) if self._redact else sample  # type: ignore[return-value]


class SonarTranslator(Translator):
    """Messages that consumers of Sonar's format take unchanged."""

    def __init__(
        self,
        sonar: Sonar,
        selection: Selection,
        redact: Redaction | None = None,
    ) -> None:
        super().__init__(sonar.known, selection, redact)
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
        if self._redact is not None:
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
        redact: Redaction | None = None,
        known: Known | None = None,
    ) -> None:
        super().__init__(known or Known(), selection, redact)
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
            return record.line if self._redact is None else record_line(info)[:-1]
        if not self._selection.samples:
            return None
        if self._redact is None and not self._selection.is_partial:
            return record.line
        return record_line(self._selection.of(self._sample(record.line)))[:-1]
