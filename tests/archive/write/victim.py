"""A writer to be killed: `python -m tests.archive.write.victim ROOT FAULT HITS` appends as fast as it can.

It prints the number of each sample once it is durable. At the given fault point it kills itself, at the
HITS-th time it comes by; `none` waits for somebody else to do it.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from vmsonar_archive.write.budget import Budget

from tests.making.archives import BOOT, START, open_writer, rows


def main(root: Path, point: str, hits: int) -> None:
    passed = 0

    def fault(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed >= hits:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = open_writer(
        root, fault=fault, budget=Budget(max_bytes=600_000 if point.startswith("drop") else 2**30, min_free=0)
    )
    told = 0
    for number in range(1_000_000):
        # A new hour every 40 samples, so that sealing and rewriting happen all the time.
        moment = START + timedelta(seconds=90 * (writer.last_seq + 1))
        writer.append(moment, BOOT, 10**15 + number * 10**9, rows(number, 20))
        if number % 40 == 39 and point.startswith(("rewrite", "journal")):
            while not writer._house.sync_thread.idle:
                pass
            writer.tidy()
        writer.maintain()
        if point == "none":
            time.sleep(0.001)
        if writer.durable_seq > told:
            told = writer.durable_seq
            os.write(1, b"%d\n" % told)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
