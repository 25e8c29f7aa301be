"""The Slurm companion, `python -m vmsonar.companion.slurm`: asks scontrol, sinfo and sacct now and then.

`--listen PATH` as a unit, `--fd N` as the recorder's child. It asks no more often than it is told, goes back twice
that time, or as far as the last answer, and tells what is new or changed; what is not over again in each hour, so that
no day's record is without it.
"""

import secrets
import select
import socket
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
from vmsonar_archive.records import BatchJobRow, ClusterRow
from vmsonar_archive.system.text import printable

from vmsonar.collectors.protocol import MAX_LINE, WireMessage, to_line
from vmsonar.collectors.slurm.wire import Asked, BatchJobs, ClusterState
from vmsonar.companion.entry import start
from vmsonar.companion.listeners import heard, listen_on
from vmsonar.companion.programs import ProgramError, Programs
from vmsonar.companion.sacct import FIELDS, NotSacct, job_row, records
from vmsonar.config.quantities import Duration
from vmsonar.config.schema import Slurm as Settings

# A line has no more rows than that, and a row is added to none that is longer: far below what the recorder takes.
_ROWS_PER_LINE = 50
_BYTES_PER_LINE = 48 * 1024
#: States of a job that will change no more.
OVER = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REQUEUED", "REVOKED", "TIMEOUT",
})  # fmt: skip
#: However long nobody answered, no more than a day is asked for.
_LONGEST = 86_400.0

_encode = msgspec.json.Encoder().encode


class Questions:
    """Asks Slurm, and knows what was told before."""

    def __init__(self, programs: Programs, settings: Settings) -> None:
        self._programs = programs
        self._settings = settings
        #: Hashes of the rows of the last answer, and the hour in which each was there: what it holds again is no news.
        self._told: dict[int, int] = {}
        #: The cluster as it was told last, and in which hour.
        self._cluster: tuple[int, list[ClusterRow]] | None = None
        self._name: str | None = None
        self._fields: tuple[str, ...] = ()
        self._answered: float | None = None
        #: Whether Slurm counts GPUs: a job for which it names none has none.
        self._counts_gpus = False
        #: When to ask again: who takes long to answer is asked less often, and one that comes back asks no sooner.
        self.due = 0.0

    def ask(self) -> Iterator[WireMessage]:
        """Everything that is new or changed, and how each program answered."""
        try:
            yield from _guarded("scontrol", self._ask_config)
            yield from _guarded("sinfo", self._ask_cluster)
            yield from _guarded("sacct", self._ask_jobs)
        finally:
            self.due = time.monotonic() + self._settings.interval

    def forget(self) -> None:
        """A new recorder is told everything, as far back as the last one was answered."""
        self._told, self._cluster = {}, None

    def _ask_config(self) -> Iterator[WireMessage]:
        for line in () if self._name else self._programs.lines("scontrol", "show", "config"):
            key, _, value = line.partition("=")
            if key.strip() == "ClusterName":
                self._name = value.strip()
            elif key.strip() == "AccountingStorageTRES":
                self._counts_gpus = "gres/gpu" in value.strip().lower().split(",")
        yield from ()

    def _ask_cluster(self) -> Iterator[WireMessage]:
        names = self._programs.lines("sinfo", "-h", "-a", "-o", "%R|%N")
        pairs = [(name, nodes) for name, bar, nodes in (line.partition("|") for line in names) if bar]
        rows = [ClusterRow(cluster_name=self._name, partition_name=a, node_names=b or None) for a, b in pairs]
        states = dict[tuple[str, str], None]()  # nodes of several partitions are told for each
        for line in self._programs.lines("sinfo", "-h", "-a", "-e", "-O", "NodeList:|,StateComplete:|"):
            nodes, bar, state = line.strip().removesuffix("|").partition("|")
            if not bar:
                raise ProgramError(f"sinfo says what nobody expects: {printable(line)[:80]}", "protocol")
            states[nodes, state.upper()] = None
        rows += [ClusterRow(cluster_name=self._name, node_names=a, node_states=b) for a, b in states]
        told = (_hour(), rows)
        if told != self._cluster:
            message = ClusterState(rows=rows)
            if len(to_line(message)) > MAX_LINE:
                raise ProgramError("sinfo names more partitions and nodes than fit a line", "too_large")
            yield message
            self._cluster = told

    def _ask_jobs(self) -> Iterator[WireMessage]:
        began, hour = time.monotonic(), _hour()
        fields, delimiter = self._known_fields(), secrets.token_hex(8)
        words = [
            "-a",
            "-p",
            "-n",
            "-D",
            "--noconvert",
            f"--delimiter={delimiter}",
            f"--starttime=now-{self._span(began)}seconds",
        ]
        if self._settings.jobs == "node":
            words.append(f"--nodelist={socket.gethostname().partition('.')[0]}")
        told: dict[int, int] = {}
        news: list[BatchJobRow] = []
        size = strange = 0
        cut: NotSacct | None = None
        self._fields = ()  # asked for again where this fails: another release may have been installed
        with self._programs.answer("sacct", *words, f"--format={','.join(fields)}") as said:
            try:
                for values in records(said, delimiter, len(fields)):
                    row = self._row(dict(zip(fields, values, strict=True)))
                    if row is None:
                        strange += 1
                        continue
                    encoded = _encode(row)
                    mark = hash(encoded)
                    before = self._told.get(mark)
                    is_due = before is None or (before != hour and row.job_state not in OVER)
                    if is_due and mark not in told:
                        news.append(row)
                        size += len(encoded)
                    told[mark] = hour
                    if len(news) == _ROWS_PER_LINE or size > _BYTES_PER_LINE:
                        yield BatchJobs(rows=news)
                        news, size = [], 0
            except NotSacct as error:
                cut = error
        if news:
            yield BatchJobs(rows=news)
        if cut is not None:
            # What was told of an answer that breaks off is no news the next time; what lies behind the break may be.
            recent = hour - int(_LONGEST // 3600)
            self._told = {mark: seen for mark, seen in (self._told | told).items() if seen >= recent}
            raise cut
        self._fields, self._told, self._answered = fields, told, began
        if strange:
            raise NotSacct(f"sacct names something that is no job, in {strange} of its lines")

    def _row(self, told: dict[str, str]) -> BatchJobRow | None:
        row = job_row(told)
        if row is not None:
            row.cluster_name = row.cluster_name or self._name
            for when in ("requested", "allocated") if self._counts_gpus else ():
                if getattr(row, f"{when}_resources") and getattr(row, f"{when}_gpus") is None:
                    setattr(row, f"{when}_gpus", 0)
        return row

    def _span(self, now: float) -> int:
        since = 0.0 if self._answered is None else now - self._answered
        return round(min(_LONGEST, max(2 * self._settings.interval, since + self._settings.interval)))

    def _known_fields(self) -> tuple[str, ...]:
        """The fields that this release has, asked for once."""
        if not self._fields:
            known = set(" ".join(self._programs.lines("sacct", "--helpformat")).split())
            if not {"JobIDRaw", "State"} <= known:
                raise ProgramError("sacct knows neither JobIDRaw nor State", "protocol")
            self._fields = tuple(field for field in FIELDS if field in known)
        return self._fields


def _hour() -> int:
    return int(time.time() // 3600)


def _guarded(program: str, ask: Callable[[], Iterator[WireMessage]]) -> Iterator[WireMessage]:
    """What a question brings, and whether it was answered."""
    try:
        yield from ask()
        yield Asked(program=program, state="ok")
    except ProgramError as error:
        yield Asked(program=program, state=error.state, detail=str(error))
    except NotSacct as error:
        yield Asked(program=program, state="protocol", detail=str(error))


def serve(questions: Questions, recorder: socket.socket) -> None:
    """Asks and tells until the recorder is gone."""
    questions.forget()
    while _stays(recorder, questions.due):
        try:
            for message in questions.ask():
                recorder.sendall(to_line(message))
        except OSError:
            return


def _stays(recorder: socket.socket, due: float) -> bool:
    """Whether the recorder is there until it is time to ask."""
    while (left := due - time.monotonic()) > 0:
        if select.select([recorder], [], [], left)[0]:
            recorder.setblocking(False)
            if heard(recorder) is None:
                return False
            recorder.setblocking(True)  # it takes its time, but when it is gone its socket says so
    return True


def _run(options: Namespace) -> int:
    settings = _settings(options)
    questions = Questions(Programs(settings), settings)
    if options.fd is not None:
        serve(questions, socket.socket(fileno=options.fd))
        return 0
    server = listen_on(options.listen)
    try:
        while True:
            recorder, _ = server.accept()
            with recorder:
                serve(questions, recorder)
    finally:
        Path(options.listen).unlink(missing_ok=True)


def _settings(options: Namespace) -> Settings:
    """Of the arguments, or of the configuration file."""
    if options.fd is None:
        from vmsonar.config.file import load_config

        return load_config(options.config).slurm
    return Settings(
        interval=Duration(options.interval),
        timeout=Duration(options.timeout),
        jobs=options.jobs,
        folder=options.folder,
        conf=options.conf,
    )


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="with --listen: read the section slurm here"
    )
    parser.add_argument("--interval", type=float, default=120.0, help="seconds from one question to the next")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds that a program may take")
    parser.add_argument("--jobs", default="all", choices=("all", "node"))
    parser.add_argument("--folder", help="where Slurm's programs are")
    parser.add_argument("--conf", help="slurm.conf, where it is not in its usual place")


def main() -> NoReturn:
    """Asks Slurm until told to stop, or until the recorder that started it is gone."""
    start("vmsonar.companion.slurm", "Tells vmsonar what Slurm says of jobs and nodes.", _add_options, _run)


if __name__ == "__main__":
    main()
