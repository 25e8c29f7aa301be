"""A writer for storms: `python -m tests.archive.write.fast_writer ROOT INTERVAL PROCESSES PER_HOUR` until it is killed.

It tells on its output, a line each, what was appended (`a SEQ RUN`) and up to where all is durable (`d SEQ`), and on
its input takes `end`, upon which it closes the archive in peace. An hour passes with every PER_HOUR records, so that
segments begin, are sealed, compressed again and merged all the time.
"""

import os
import select
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from vmsonar_archive.records import SysInfo
from vmsonar_archive.write.losses import AppendFailed

from tests.making.archives import BOOT, START, open_writer, rows

# Work on finished hours is begun every ten ticks: with more of them it runs all the time.
_TICKS = 5


def main(root: Path, interval: float, processes: int, per_hour: int) -> None:
    moment = START

    def tell(text: str) -> None:
        os.write(1, text.encode())

    writer = open_writer(root, now=lambda: moment + timedelta(hours=2))
    told, number, due = 0, 0, 0.0
    # Between two records it looks often: what is durable is to be told before the next kill comes.
    while not select.select([0], [], [], min(interval, 0.005))[0]:
        if writer.durable_seq > told:
            told = writer.durable_seq
            tell(f"d {told}\n")
        if time.monotonic() < due:
            continue
        due = time.monotonic() + interval
        number += 1
        seq = writer.last_seq + 1
        moment = START + timedelta(seconds=3600 / per_hour * seq)
        with suppress(AppendFailed):
            if number % 6 == 1:
                about = {"boot": BOOT, "boottime": time.monotonic_ns(), "cpu_model": "x" * 60 * processes}
                writer.append_sysinfo(SysInfo(time=moment, seq=0, run="", **about))
            else:
                writer.append(moment, BOOT, time.monotonic_ns(), rows(seq, processes))
            tell(f"a {writer.last_seq} {writer.run}\n")
        for _ in range(_TICKS):
            writer.maintain()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
