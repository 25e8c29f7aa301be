"""Writers that are killed, and the check that nothing they said was durable is lost."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from vmsonar_archive.read.reader import open_archive

from tests.making.archives import check, codes, open_writer

REPOSITORY = Path(__file__).resolve().parents[3]


INTERVAL = 0.05
# Rows of so many processes make a line of about 50 kB.
PROCESSES = 820
# More than zstd's reader has room for, so that it matters how much of an unfinished frame is read.
PER_HOUR = 30


@dataclass
class Told:
    """What the writers of one archive said."""

    durable: int = 0
    #: The run that gave out each number.
    appended: dict[int, str] = field(default_factory=dict)

    def take(self, output: bytes) -> None:
        for line in output.split(b"\n")[:-1]:
            word, seq, *run = line.decode().split(" ")
            if word == "d":
                self.durable = max(self.durable, int(seq))
            else:
                assert int(seq) not in self.appended, f"number {seq} was given twice"
                self.appended[int(seq)] = run[0]


def start(
    root: Path, interval: float = INTERVAL, processes: int = PROCESSES, **settings
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.archive.write.fast_writer", str(root)]
    command += [str(interval), str(processes), str(PER_HOUR)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, cwd=REPOSITORY, **pipes, **settings)


def check_read(root: Path, told: Told) -> int:
    """Everything that was appended is there, durable or not: a kill does not empty the page cache."""
    with open_archive(root) as archive:
        found = [*archive.sysinfos(), *archive.samples()]
    runs = {record.seq: record.run for record in found}
    assert len(runs) == len(found), "a number was given twice"
    lost = {seq: run for seq, run in told.appended.items() if runs.get(seq) != run}
    assert not lost, (
        f"{len(lost)} records lost, {sum(seq <= told.durable for seq in lost)} of them durable: {lost}"
    )
    return len(found)


def after_repair(root: Path, told: Told) -> int:
    writer = open_writer(root)
    assert writer.last_seq >= max(told.appended, default=0)
    assert writer.close()
    report = check(root)
    assert report.ok, report.findings
    assert not codes(report) & {"torn_tail", "unsealed", "pending"}
    return check_read(root, told)
