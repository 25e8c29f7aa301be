"""A writer on a failing disk: `python -m tests.faults.victim ROOT` appends until standard input ends, then closes.

It prints `a RUN SEQ` for each record that was appended and `d RUN SEQ` when all up to there is durable. A record that
the disk refuses is lost, as the daemon would lose it; an archive that cannot be opened ends it with 3.
"""

import os
import select
import sys
from datetime import timedelta
from pathlib import Path

from vmsonar_archive.records import SysInfo
from vmsonar_archive.write.losses import AppendFailed
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making.archives import BOOT, START, open_writer, rows


def main(root: Path) -> int:
    try:
        writer = open_writer(root)
    except OSError:
        return 3
    told = 0
    number = 0
    while not select.select([0], [], [], 0.002)[0]:
        # A new hour every 40 samples, so that sealing and rewriting happen all the time.
        moment = START + timedelta(seconds=90 * (writer.last_seq + 1))
        try:
            if number % 25 == 0:
                info = SysInfo(time=moment, seq=0, run="", boot=BOOT, boottime=number, cpus=2)
                say(b"a", writer, writer.append_sysinfo(info))
            say(b"a", writer, writer.append(moment, BOOT, number, rows(number, 20)))
        except AppendFailed:
            pass
        number += 1
        writer.maintain()
        if writer.durable_seq > told:
            told = writer.durable_seq
            say(b"d", writer, told)
    writer.close()
    say(b"d", writer, writer.durable_seq)
    return 0


def say(what: bytes, writer: ArchiveWriter, seq: int) -> None:
    os.write(1, b"%s %s %d\n" % (what, writer.run.encode(), seq))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
