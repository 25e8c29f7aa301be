"""Forwarding: what a row costs in each dialect, how fast a day's backlog is drained, how much memory that takes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from vmsonar_archive.format.identity import NodeIdentity, read_identity
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import NodeRow, ProcessInfoRow, SysInfo
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.writer import ArchiveWriter

from bench import Figure
from tests.making.load import BOOT, START, make_processes
from vmsonar.config.shipping import Forward
from vmsonar.forward.feed import Feed
from vmsonar.forward.messages import Fate, ForwardMessage, Outcome, Sender
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.pump import Caution, Pump
from vmsonar.forward.state import Cursor

PROCESSES = 100
HOUR = 360


class Acknowledges(Sender):
    """Takes everything at once, so that what is measured is ours."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[int] = []

    def submit(self, message: ForwardMessage, token: int) -> None:
        self._waiting.append(token)

    def wait(self, seconds: float) -> list[Outcome]:
        tokens, self._waiting = self._waiting, []
        return [Outcome(token, Fate.ACKNOWLEDGED) for token in tokens]

    def close(self) -> list[Outcome]:
        return []


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _record(place / "hour", HOUR)
        figures = [
            Figure(f"dialect {dialect}, read to acknowledged", _rows_per_second(place / "hour", dialect),
                   "process rows per CPU s", bound, at_least=True)
            for dialect, bound in (("sonar", 20_000), ("native", 60_000))
        ]  # fmt: skip
        return figures + _drained(place)


def _record(root: Path, samples: int) -> None:
    node = NodeIdentity(machine_id="0" * 32, hostname_full="vm.example.org")
    writer = ArchiveWriter(
        root, node, Budget(max_bytes=2**40, min_free=0), fdatasync=lambda _descriptor: None
    )
    info = SysInfo(
        time=START, seq=0, run="", boot=BOOT, boottime=10**15, hostname_full="vm.example.org", cpus=4
    )
    writer.append_sysinfo(info)
    processes = make_processes(PROCESSES)
    infos = [
        encode_row(ProcessInfoRow(series_id="0" * 36, pid=process.row.pid, start_ticks=process.row.start_ticks,
                                  user_name="alice", program="python3", command="python3 train.py"))
        for process in processes
    ]  # fmt: skip
    for number in range(samples):
        when = START + timedelta(seconds=10 * number)
        for process in processes:
            if process.step():
                process.encoded = encode_row(process.row)
        rows = {"node": [encode_row(NodeRow(load1=1.5, memory_total=2**34, memory_available=2**33))],
                "process": [process.encoded for process in processes]}  # fmt: skip
        if writer.begins_segment(when):
            rows["process_info"] = infos
        writer.append(when, BOOT, 10**15 + number * 10**10, rows)
    writer.close()


def _rows_per_second(root: Path, dialect: str) -> float:
    sent, cpu = forwarded(root, Forward(cluster="c.example.org", brokers=["nowhere:1"], dialect=dialect))
    return (sent - 1) * PROCESSES / cpu


def forwarded(root: Path, forward: Forward) -> tuple[int, float]:
    """Records, and seconds of CPU time from reading them to acknowledged by somebody who takes everything at once."""
    plan = ForwardPlan(forward)
    identity = read_identity(root)
    cursor = Cursor(archive=identity.archive)
    feed = Feed(root, identity, cursor, print)
    pump = Pump(
        feed, plan.translator(identity, cursor), Acknowledges(), plan.topics, cursor, root, print, Caution()
    )
    begin = time.process_time()
    while not pump.is_done:
        pump.step(0)
    cpu = time.process_time() - begin
    feed.close()
    return cursor.counts.sent, cpu


def _drained(place: Path) -> list[Figure]:
    """To a real broker, where there is one to be had."""
    from tests.parts import missing
    from tests.real.kafka import KafkaBroker

    if missing("kafka"):
        print(missing("kafka"), file=sys.stderr)
        return []
    broker = KafkaBroker(place / "kafka")
    broker.start()
    try:
        day = _drain(place, "day", 24 * HOUR, broker.plaintext)
        days = _drain(place, "days", 72 * HOUR, broker.plaintext)
    finally:
        broker.stop()
    what = f"24 h of {PROCESSES} processes, to a broker"
    return [
        Figure(f"{what}: drained in", day[0], "s", 60),
        Figure(f"{what}: peak memory", day[1], "MB", 60),
        Figure(f"72 h of {PROCESSES} processes, to a broker: peak memory", days[1], "MB", 60),
    ]


def _drain(place: Path, name: str, samples: int, broker: str) -> tuple[float, float]:
    """Seconds and peak megabytes of `vmsonar forward --once`."""
    _record(place / name, samples)
    config = place / f"{name}.yaml"
    forward = {
        "cluster": name,
        "brokers": [broker],
        "tls": {"use": "none"},
        "state": str(place / f"{name}-state"),
    }
    config.write_text(json.dumps({"archive": str(place / name), "forward": forward}))
    begin = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "vmsonar",
        "forward",
        "--once",
        "--timeout",
        "10min",
        "--config",
        str(config),
    ]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, child.returncode
    return time.monotonic() - begin, usage.ru_maxrss / 1024
