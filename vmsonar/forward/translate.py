"""Turns lines of the archive into messages of one of two dialects, split where they are too large."""

from base64 import b64encode
from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from vmsonar_archive.dialect.history import History, HostName, Infos
from vmsonar_archive.dialect.places import Carried
from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.layout import SYSINFO
from vmsonar_archive.format.lines import BadLine, decode_sample, decode_sysinfo, finish, record_line
from vmsonar_archive.records import KINDS, Sample, Stamp, SysInfo

from vmsonar.forward.tail import Record

if TYPE_CHECKING:
    from vmsonar_archive.bundle.redact import Redactor


#: Rows of a sample that belong to a job.
_OF_JOBS = ("gpu_process", "job", "job_info", "process", "process_info")
_encode = msgspec.json.Encoder().encode
_decode_infos = msgspec.json.Decoder(Infos).decode


def split_sonar(value: bytes, limit: int) -> list[bytes]:
    """Splits a sample, or what Slurm tells, by job into several messages; a single job may still be too large."""
    whole = msgspec.json.decode(value)
    attributes = whole["data"]["attributes"]
    name = "slurm_jobs" if "slurm_jobs" in attributes else "jobs"
    jobs = attributes.pop(name, [])
    if len(jobs) < 2:
        return [value]
    # The node's state stands in each, because readers demand it; they drop one of two for the same time.
    room = limit - len(_encode(whole)) - len(f',"{name}":[]')
    parts = []
    for number, group in enumerate(packed([(job, len(_encode(job)) + 1) for job in jobs], room)):
        if number == 1:
            attributes.pop("errors", None)
        attributes[name] = group
        parts.append(_encode(whole))
    return parts


def split_native(value: bytes, limit: int) -> list[bytes]:
    """Splits a sample by job into several messages; rows of no job go into the first."""
    whole = msgspec.json.decode(value)
    whole.pop("crc", None)
    groups = _rows_by_job(whole)
    if not groups:
        return [value]
    stamp = {name: whole[name] for name in ("time", "seq", "run", "boot", "boottime")}
    rest = {name: rows for name, rows in whole.items() if name not in (*_OF_JOBS, "batch_job")}
    sized = [(group, len(_encode(group))) for group in groups]
    room = limit - len(_encode(stamp)) - len(b',"crc":"01234567"')
    parts = [rest] if len(rest) > len(stamp) else []
    for some in packed(sized, room):
        rows: dict[str, list[Any]] = {}
        for kind, of_kind in chain.from_iterable(group.items() for group in some):
            rows.setdefault(kind, []).extend(of_kind)
        parts.append({**stamp, **rows})
    return [finish(_encode(part)[:-1])[:-1] for part in parts] if len(parts) > 1 else [value]


def _rows_by_job(whole: dict[str, Any]) -> list[dict[str, list[Any]]]:
    """The rows of each process group, by kind, and those of each batch job."""
    group_of = {(row["pid"], row["start_ticks"]): row.get("pgid") for row in whole.get("process", ())}
    groups: dict[Any, dict[str, list[Any]]] = {}
    for kind in _OF_JOBS:
        for row in whole.get(kind, ()):
            group = row.get("pgid", group_of.get((row.get("pid"), row.get("start_ticks"))))
            groups.setdefault(group, {}).setdefault(kind, []).append(row)
    return [*groups.values(), *({"batch_job": [row]} for row in whole.get("batch_job", ()))]


def packed(sized: list[tuple[Any, int]], room: int) -> Iterator[list[Any]]:
    """Groups neighbours as long as they fit; one that is too large is a group of its own."""
    group: list[Any] = []
    used = 0
    for item, size in sized:
        if group and used + size > room:
            yield group
            group, used = [], 0
        group.append(item)
        used += size
    if group:
        yield group


class RowSelection:
    """Which kinds are sent; none given means all."""

    def __init__(self, kinds: Collection[str] = ()) -> None:
        wanted = set(kinds) or {*KINDS, SYSINFO}
        self.sysinfo = SYSINFO in wanted
        self.samples = bool(wanted - {SYSINFO})
        self.left_out: dict[str, list[msgspec.Struct]] = {kind: [] for kind in KINDS if kind not in wanted}

    def of(self, sample: Sample) -> Sample:
        """The sample with only the rows that are sent."""
        return msgspec.structs.replace(sample, **self.left_out) if self.left_out else sample


class Translator:
    """Our records as they are.

    Sees every record in order, for what later ones refer to; translates those that are to be sent.
    """

    def __init__(
        self,
        node: str,
        host_name: HostName,
        known: History,
        selection: RowSelection,
        redactor: "Redactor | None" = None,
    ) -> None:
        """`node` is the name to use where no sysinfo record tells one."""
        self.known = known
        self._node = node
        self._host_name: HostName = host_name
        self._selection = selection
        self._redactor = redactor
        self._more: list[tuple[str, bytes]] = []

    def node_at(self, seq: int) -> str:
        """The key of the message."""
        return self.known.machine_at(seq).name(self._host_name) or self._node

    def split(self, value: bytes, limit: int) -> list[bytes]:
        """The message split by job; a list of one where it cannot be split."""
        return split_native(value, limit)

    def learn(self, record: Record) -> None:
        """Remembers what later records need of one that is not sent."""
        if record.kind == SYSINFO:
            self.known.learn_machine(self._sysinfo(record.line))

    def translate(self, record: Record) -> bytes | None:
        """The value of the message; None when nothing of the record is sent. Raises BadLine."""
        if record.kind == SYSINFO:
            info = self._sysinfo(record.line)
            self.known.learn_machine(info)
            if not self._selection.sysinfo:
                return None
            return record.line if self._redactor is None else record_line(info)[:-1]
        if not self._selection.samples:
            return None
        if self._redactor is None and not self._selection.left_out:
            return record.line
        return record_line(self._selection.of(self._sample(record.line)))[:-1]

    @property
    def carried(self) -> Carried | None:
        """What a translator that goes on after this record has to know."""
        return None

    def more(self) -> list[tuple[str, bytes]]:
        """Further messages of the record that was translated last: what they are of, and their values."""
        return self._more

    def headers(self, identity: ArchiveIdentity, stamp: Stamp, head: str) -> dict[str, str]:
        """The record's id, whose archive it is, and the journal's head unless names are hidden."""
        names = {"archive": identity.archive, "run": stamp.run, "boot": stamp.boot}
        if self._redactor is None:
            return {**names, "seq": str(stamp.seq), "head": head, **self._identity(identity)}
        hide = self._redactor.identifier
        shown = {name: hide(value) for name, value in names.items()}
        return {**shown, "seq": str(stamp.seq), **self._identity(self._redactor.identity(identity))}

    def _identity(self, identity: ArchiveIdentity) -> dict[str, str]:
        return {"identity": b64encode(msgspec.json.encode(identity)).decode()}

    def _sysinfo(self, line: bytes) -> SysInfo:
        info = decode_sysinfo(line)
        return self._redactor.sysinfo(info) if self._redactor else info

    def _sample(self, line: bytes) -> Sample:
        sample = decode_sample(line)
        return self._redactor.sample(sample) if self._redactor else sample


class SonarTranslator(Translator):
    """Messages in Sonar's format."""

    def __init__(self, cluster: str, node: str, host_name: HostName, known: History, *rest: Any) -> None:
        super().__init__(node, host_name, known, *rest)
        self._sonar = Sonar(cluster, node, host_name, known)
        self._last_passed: bytes | None = None

    def split(self, value: bytes, limit: int) -> list[bytes]:
        return split_sonar(value, limit)

    def _identity(self, identity: ArchiveIdentity) -> dict[str, str]:
        return {}  # what reads this dialect knows no archives

    def learn(self, record: Record) -> None:
        if record.kind == SYSINFO:
            super().learn(record)
        elif self._redactor is not None:
            self._sonar.pass_over(self._sample(record.line))
        else:
            try:
                self.known.learn_infos(_decode_infos(record.line))
            except msgspec.MsgspecError as error:
                raise BadLine(str(error)) from None
            # CPU time is needed of the last one only.
            self._last_passed = record.line

    def translate(self, record: Record) -> bytes | None:
        self._more = []
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
        shown = self._selection.of(sample)
        self._more = [(kind, envelope(kind, told)) for kind, told in self._sonar.batch(shown)]
        return envelope("sample", self._sonar.sample(sample, shown))
