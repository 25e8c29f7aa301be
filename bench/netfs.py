"""Network file systems: our own CPU time per share and sample, as a file tells it; and where there is none."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import Figure
from tests.collectors.netfs.trees import TEXTS, Machine

SAMPLES, SHARES = 200, 8
#: What changes between two samples of a busy share; of an idle one it is the age alone.
BUSY = (
    "READ: 1032 1032",
    "WRITE: 512 512",
    "GETATTR: 1 1",
    "OPEN: 2 2",
    "CLOSE: 2 2",
    "bytes:\t67108864",
    "1566 1566",
)


def run() -> list[Figure]:
    """The figures of this area."""
    return [
        Figure("busy NFS share: CPU per share and sample", _measure(SHARES, BUSY), "µs", bound=30.0),
        Figure("idle NFS share: CPU per share and sample", _measure(SHARES, ()), "µs", bound=30.0),
        Figure(
            "no share: CPU per sample",
            _measure(0, ()),
            "µs",
            bound=5.0,
            note="alone: with room on file systems the table is read anyway",
        ),
    ]


def _measure(shares: int, busy: tuple[str, ...]) -> float:
    """The best of five: the least disturbed."""
    return min(_once(shares, busy) for _ in range(5))


def _once(shares: int, busy: tuple[str, ...]) -> float:
    with TemporaryDirectory() as folder:
        mounts = "".join(f"{99 + n} 22 0:{99 + n} / /m{n} rw - nfs4 files:/e{n} rw\n" for n in range(shares))
        file = Path(folder) / "proc/1/mountstats"
        machine = Machine(Path(folder), mounts, {"proc/1/mountstats": _content(shares, busy, 0)})
        machine.sample()
        spent = 0.0
        for number in range(1, SAMPLES):
            # In place, as the kernel would: the descriptor is kept.
            with open(file, "r+b") as text:
                text.write(_content(shares, busy, number).encode())
                text.truncate()
            at = machine.tick(seconds=1)
            begin = time.process_time()
            machine.collector.collect(at)
            spent += time.process_time() - begin
        machine.collector.close()
    return spent / (SAMPLES - 1) / max(shares, 1) * 1e6


def _content(shares: int, busy: tuple[str, ...], number: int) -> str:
    section = (TEXTS / "mountstats-6.1").read_text().split("\ndevice ")[0] + "\n"
    section = section.replace("age:\t2", f"age:\t{number}")
    for text in busy:
        head, _, tail = text.rpartition(" ") if " " in text else text.rpartition("\t")
        section = section.replace(text, f"{head}{text[len(head)]}{int(tail) + number}")
    named = (
        section.replace("127.0.0.1:/ mounted on /mnt/v4", f"files:/e{n} mounted on /m{n}")
        for n in range(shares)
    )
    return "\n".join(named)
