"""What archives recorded, as metrics with their times: OpenMetrics for Prometheus' import, OTLP as lines of JSON."""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from vmsonar_archive.dialect.exposition import head, label_text, number_text
from vmsonar_archive.dialect.metrics import info_name, table
from vmsonar_archive.dialect.otlp import logs_json, logs_of, metrics_json, metrics_of, resource
from vmsonar_archive.dialect.subjects import Observer, heads, nanoseconds
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.read.findings import Code, Finding, Severity
from vmsonar_archive.read.reader import Archive, open_archive
from vmsonar_archive.records import Sample, Stamp
from vmsonar_archive.system.files import AtomicFile
from vmsonar_archive.write.outputs import OutputKind, guard

from vmsonar_inspect.export.records import by_archive, each_once, file_name
from vmsonar_inspect.tables.where import Origin

#: Of labels, times and values: what Prometheus imports is sorted by name, so they are held until the file is written,
#: where each has its name and labels too, up to ten times as much.
_MOST_BYTES = 64 * 2**20
# A file ends where a block of Prometheus does, if it has this much.
_SOME_BYTES = 4 * 2**20
_BLOCK_NS = 7200 * 10**9
_VERSION = version("vmsonar")
#: What Prometheus keeps out of its blocks: one and a half of their two hours (Prometheus' docs, "Storage").
_HEAD = timedelta(hours=3)
_FRESH = (
    "its last sample is less than 3 hours old: put blocks of it into a Prometheus that also scrapes only after that, "
    "since that drops its own samples of the same time when it starts again"
)
#: The share of samples left out that is worth a warning.
_MUCH = 0.05
OTLP_JSON = OutputKind("OTLP in JSON", lambda file: file.read(10) in (b'{"resource', b""))
OPENMETRICS = OutputKind("OpenMetrics text", lambda file: file.read(7) == b"# TYPE ")


class Sink(ABC):
    """Takes what one archive recorded, sample by sample, and writes files."""

    files = 0
    points = 0
    #: Whether every time has to be later than the one before.
    is_in_order = False

    @abstractmethod
    def take(self, observer: Observer, sample: Sample, ended: bool | None) -> None:
        """Takes the present sample: all of it, or only what ended, or only what did not."""

    @abstractmethod
    def finish(self) -> None:
        """Writes what is left."""

    @abstractmethod
    def abandon(self) -> None:
        """Leaves nothing behind."""


class OpenMetricsFiles(Sink):
    """Files as `promtool tsdb create-blocks-from openmetrics` takes them: families together, series in order."""

    is_in_order = True

    def __init__(self, folder: Path, identity: ArchiveIdentity, *, force: bool) -> None:
        self._folder = folder
        self._force = force
        host = identity.hostname_full or identity.hostname_short or identity.machine_id
        self._name = f"{file_name(host)}-{identity.archive[:8]}"
        #: What a scrape would have added, and which of several machines of that name it was.
        self._common = label_text((("instance", host), ("job", "vmsonar"), ("archive", identity.archive)))
        #: Values and times by name, and by labels.
        self._series: dict[str, dict[str, bytearray]] = {}
        #: When counters began, of those whose beginning a step has told so far.
        self._starts: dict[tuple[str, str], int] = {}
        self._made: list[Path] = []
        self._bytes = 0
        self._begin = 0
        #: Time of the last sample that was taken whole.
        self._told = 0

    def take(self, observer: Observer, sample: Sample, ended: bool | None) -> None:
        if self._bytes > _MOST_BYTES or (
            self._bytes > _SOME_BYTES and observer.time // _BLOCK_NS != self._begin // _BLOCK_NS
        ):
            self.finish()
        self._begin = self._begin or observer.time
        for metric, subject, value in observer.readings(ended):
            labels = self._labels(subject.text, label_text(metric.labels))
            of = self._series.setdefault(metric.name, {})
            time = subject.end or observer.time
            of_series, begin = (metric.name, labels), subject.start
            if metric.is_counter and 0 < self._told < begin < time and self._starts.get(of_series) != begin:
                # Its counters began after the last sample that was told: then they were 0 at that moment.
                self._starts[of_series] = begin
                self._add(of, labels, 0, begin)
            self._add(of, labels, value, time)
        if not ended:
            self._add_infos(observer)
            self._told = observer.time
            self._starts.clear()

    def _add_infos(self, observer: Observer) -> None:
        for kind in table().infos:
            of = self._series.setdefault(info_name(kind), {})
            for subject in observer.subjects.get(kind, ()):
                if subject.end is None:
                    self._add(of, self._labels(label_text(subject.info())), 1, observer.time)

    def _labels(self, *texts: str) -> str:
        return ",".join(text for text in (self._common, *texts) if text)

    def _add(self, of: dict[str, bytearray], labels: str, value: float, time: int) -> None:
        # Prometheus counts milliseconds; microseconds keep it from cutting off one too many.
        point = f" {number_text(value)} {time // 10**9}.{time % 10**9 // 1000:06}\n".encode()
        if labels not in of:
            of[labels] = bytearray()
            self._bytes += len(labels)
        of[labels] += point
        self._bytes += len(point)
        self.points += 1

    def finish(self) -> None:
        if not self._bytes:
            return
        begin = datetime.fromtimestamp(self._begin / 1e9, UTC)
        path = self._folder / f"{self._name}-{begin:%Y%m%dT%H%M%SZ}.om"
        guard(path, (), OPENMETRICS, force=self._force)
        with AtomicFile(path) as file:
            for family in heads():
                if series := self._series.get(family.name):
                    file.write(head(family).encode())
                    for labels, points in series.items():
                        name = f"{family.name}{{{labels}}}".encode("utf-8", "replace")
                        file.writelines(name + line for line in points.splitlines(keepends=True))
            file.write(b"# EOF\n")
        self.files += 1
        self._made.append(path)
        self._series.clear()
        self._bytes = self._begin = 0

    def abandon(self) -> None:
        for path in self._made:
            path.unlink(missing_ok=True)


class OtlpJsonFiles(Sink):
    """Lines for each sample, as OpenTelemetry's file receivers read them; events in a file of their own."""

    def __init__(self, folder: Path, identity: ArchiveIdentity, *, force: bool) -> None:
        self._archive = identity.archive
        self._node = identity.hostname_full or identity.hostname_short or identity.machine_id
        name = f"{file_name(self._node)}-{identity.archive[:8]}"
        self._files = {kind: folder / f"{name}-{kind}.jsonl" for kind in ("metrics", "logs")}
        for path in self._files.values():
            guard(path, (), OTLP_JSON, force=force)
        self._open = {kind: AtomicFile(path) for kind, path in self._files.items()}

    def take(self, observer: Observer, sample: Sample, ended: bool | None) -> None:
        machine = observer.machine
        node = machine and (machine.hostname_full or machine.hostname_short)
        described = resource(observer, self._archive, node or self._node)
        if metrics := metrics_of(observer, ended):
            self._write("metrics", metrics_json(described, metrics, _VERSION))
            self.points += sum(len(one.points) for one in metrics)
        # Every sample comes here once where it is not a step's last.
        if ended is not False and (logs := logs_of(sample)):
            self._write("logs", logs_json(described, logs, observer.time, _VERSION))

    def _write(self, kind: str, lines: Iterable[bytes]) -> None:
        self._open[kind].file.writelines(line + b"\n" for line in lines)

    def finish(self) -> None:
        for file in self._open.values():
            file.commit()
        self.files = len(self._open)

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()


class _History:
    """Chooses the samples of one archive that are told: all, or the last of each step."""

    def __init__(self, sink: Sink, step: float, places: int) -> None:
        self._sink = sink
        self._step = int(step * 1e9)
        self._observer = Observer(places, hold_seconds=step)
        self._until = 0
        self._last: Sample | None = None
        self.samples = self.left_out = 0

    def read(self, archives: list[Archive]) -> None:
        observer, is_in_order = self._observer, self._sink.is_in_order
        stamps = each_once(archive.stamps() for archive in archives) if is_in_order else ()
        unfit = out_of_order(stamps)
        infos = list(each_once(archive.sysinfos() for archive in archives))
        for sample in each_once(archive.samples() for archive in archives):
            while infos and infos[0].seq <= sample.seq:
                observer.learn_machine(infos.pop(0))
            if self._last is not None and self._is_over(sample):
                self._tell()
            self.samples += 1
            time = nanoseconds(sample.time)
            if is_in_order and (time <= self._until or (sample.seq, time) in unfit):
                observer.learn(sample)
                self.left_out += 1
                continue
            observer.observe(sample)
            if self._last is None:
                observer.fallen.clear()  # told with the step before
            self._last, self._until = sample, observer.time
            if self._step:
                self._sink.take(observer, sample, ended=True)
            else:
                self._tell()
        if self._last is not None:
            self._tell()
        self._sink.finish()

    def is_fresh(self, now: datetime) -> bool:
        """Whether its last sample is of a time that a running Prometheus still has in memory."""
        return self._until > nanoseconds(now - _HEAD)

    def _is_over(self, sample: Sample) -> bool:
        """Whether the step of the last sample ends before this one."""
        assert self._last is not None
        same = nanoseconds(sample.time) // self._step == self._observer.time // self._step
        return not same or sample.boot != self._last.boot

    def _tell(self) -> None:
        assert self._last is not None
        self._sink.take(self._observer, self._last, ended=False if self._step else None)
        self._last = None


def out_of_order(stamps: Iterable[Stamp]) -> set[tuple[int, int]]:
    """Numbers and times of those to leave out so that all other times rise, where a clock was set back.

    As few as can be: what was told by a clock that was far ahead is given up, not all that came after it. What stays
    is a longest increasing subsequence (Fredman, On computing the length of longest increasing subsequences, 1975).
    """
    seqs, times, before = array("q"), array("q"), array("q")
    # The last of the best rows of every length: its place, and its time.
    lasts, ends = array("q"), array("q")
    for place, stamp in enumerate(stamps):
        time = nanoseconds(stamp.time)
        length = bisect_left(ends, time)
        before.append(lasts[length - 1] if length else -1)
        lasts[length : length + 1] = array("q", [place])
        ends[length : length + 1] = array("q", [time])
        seqs.append(stamp.seq)
        times.append(time)
    kept = bytearray(len(times))
    place = lasts[-1] if lasts else -1
    while place >= 0:
        kept[place] = True
        place = before[place]
    return {found for found, is_kept in zip(zip(seqs, times, strict=True), kept, strict=True) if not is_kept}


def export_history(
    origins: Iterable[Origin],
    folder: Path,
    to: str,
    step: float,
    places: int,
    *,
    now: datetime,
    force: bool = False,
) -> tuple[dict[str, int], list[Finding]]:
    """Writes the history of every archive to `openmetrics` or `otlp-json`; returns counts and what was found wrong."""
    findings: list[Finding] = []
    counts = {"files": 0, "points": 0}
    folder.mkdir(parents=True, exist_ok=True)
    for group in by_archive(origins, findings).values():
        with ExitStack() as stack:
            archives = [stack.enter_context(open_archive(path)) for path in group]
            sink = _SINKS[to](folder, archives[0].identity, force=force)
            history = _History(sink, step, places)
            try:
                history.read(archives)
            except BaseException:
                sink.abandon()
                raise
            findings += [finding for archive in archives for finding in archive.findings]
        if history.left_out:
            said = (
                f"{history.left_out} of {history.samples} samples are left out: the clock was set back, and "
                "Prometheus takes rising times only"
            )
            severity = Severity.WARNING if history.left_out > _MUCH * history.samples else Severity.NOTE
            findings.append(Finding.of(Code.SAMPLING_GAP, str(group[0]), said, severity))
        if sink.is_in_order and sink.points and history.is_fresh(now):
            findings.append(Finding.of(Code.PENDING, str(group[0]), _FRESH))
        counts["files"] += sink.files
        counts["points"] += sink.points
    return counts, findings


_SINKS = {"openmetrics": OpenMetricsFiles, "otlp-json": OtlpJsonFiles}
