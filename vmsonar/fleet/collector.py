"""The loop of `vmsonar collect`: sources in turn, then what is due; a fault of one place does not stop the others."""

import time

import msgspec
from vmsonar_archive.system.errors import VmsonarError

from vmsonar.config.shipping import FleetSection
from vmsonar.daemon.log import Log
from vmsonar.daemon.signals import Signals
from vmsonar.fleet.intake import Intake, Receipt
from vmsonar.fleet.kafka import KafkaSource
from vmsonar.fleet.sources import Source, source_at
from vmsonar.fleet.upkeep import Upkeep
from vmsonar.fleet.watch import Watch
from vmsonar.host.clock import Backoff

_KEPT_AT_ONCE = 10


class Collected(msgspec.Struct, kw_only=True):
    """What a collector has done: the answer of `vmsonar collect --once --json`."""

    accepted: int = 0
    refused: int = 0
    records: int = 0
    repeats: int = 0
    #: Files that were left where they are: not complete yet, or a link, a pipe or a folder of that name.
    waiting: int = 0
    #: Places that could not be asked or written to, with the reason.
    failed: dict[str, str] = {}


class _Turn:
    """A source and when it is asked again."""

    def __init__(self, source: Source | KafkaSource) -> None:
        self.source = source
        self.due = 0.0
        self.is_failing = False
        self.pauses = Backoff(5, 300, draw=max)


class Collector:
    """Takes in what arrives, until it is told to stop or, once, until nothing new is there."""

    def __init__(
        self, settings: FleetSection, intake: Intake, log: Log, signals: Signals, *, once: bool = False
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._log = log
        self._signals = signals
        self.done = Collected()
        self._once = once
        self._turns = [
            _Turn(source_at(place, intake, keep=settings.keep_shipped)) for place in settings.sources
        ]
        self._kafka = KafkaSource(settings.kafka, intake, once=once) if settings.kafka.brokers else None
        if self._kafka is not None:
            self._turns.append(_Turn(self._kafka))
        self._upkeep = Upkeep(intake, settings, log)
        self._watch = Watch(intake.fleet, settings, log, intake.now)

    def run(self) -> Collected:
        """Ends when it is told to, having filed what it holds."""
        try:
            self._run(self._once)
        finally:
            if self._kafka is not None:
                self._kafka.close()
            self._upkeep.close()
            self._watch.close()
        self.done.waiting = sum(turn.source.waiting for turn in self._turns)
        return self.done

    def _run(self, once: bool) -> None:
        while not self._signals.stop:
            before = self.done.accepted + self.done.refused
            for turn in self._turns:
                if once or time.monotonic() >= turn.due:
                    self._ask(turn)
            if once and self.done.accepted + self.done.refused == before:
                break
            if not once:
                self._tend()
                self._signals.wait(int(self._settings.every * 1e9))

    def _tend(self) -> None:
        """What is due besides taking in: some archives at a time, and a look at the machines."""
        try:
            for _ in range(_KEPT_AT_ONCE):
                self._upkeep.step()
            self._watch.look(
                {one.source.origin for one in self._turns if one.is_failing or one.source.is_behind}
            )
        except (OSError, VmsonarError) as error:
            if self.done.failed.get("upkeep") != str(error):
                self._log.error(f"{self._intake.fleet.root}: {error}; tried again")
            self.done.failed["upkeep"] = str(error)
        else:
            self.done.failed.pop("upkeep", None)

    def _ask(self, turn: _Turn) -> None:
        place = turn.source.place
        try:
            for receipt in turn.source.round(lambda: self._signals.stop):
                self._note(receipt)
        except (OSError, VmsonarError) as error:
            turn.is_failing, turn.due = True, time.monotonic() + turn.pauses.next()
            self._fails(place, str(error))
            return
        turn.is_failing = False
        turn.pauses.reset()
        if turn.source.trouble is not None:
            self._fails(place, turn.source.trouble)
        elif self.done.failed.pop(place, None):
            self._log.info(f"{place} is well again")

    def _fails(self, place: str, why: str) -> None:
        if self.done.failed.get(place) != why:
            self._log.error(f"{why if place in why else f'{place}: {why}'}; tried again")
        self.done.failed[place] = why

    def _note(self, receipt: Receipt) -> None:
        self.done.records += receipt.records
        self.done.repeats += receipt.repeats
        if receipt.accepted:
            self.done.accepted += 1
            whose = receipt.host or receipt.archive
            self._log.info(f"{receipt.name}: {receipt.records} new records{f' of {whose}' if whose else ''}")
        else:
            self.done.refused += 1
            lies = "is kept where it is, the reason is" if receipt.stays else "lies with the reason"
            self._log.warning(f"{receipt.name} {receipt.detail}; it {lies} in {receipt.set_aside}")
