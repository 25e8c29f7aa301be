"""Appending, recompressing and reading the model load: 500 processes, 60 % idle, an hour of 10 s samples."""

import resource
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from vmsonar_archive.format.frames import SEALED_LEVEL
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.writer import ArchiveWriter

from bench import Figure
from tests.making.load import BOOT, START, make_processes

PROCESSES = 500
SAMPLES = 360


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "archive"
        return [*_append(root), *_recompress(root), *_read(root)]


def _append(root: Path) -> list[Figure]:
    node = NodeIdentity(machine_id="0" * 32)
    # fdatasync waits for the disk, not for the processor; it is left out, as the figure says.
    writer = ArchiveWriter(
        root, node, Budget(max_bytes=2**40, min_free=0), fdatasync=lambda _descriptor: None
    )
    processes = make_processes(PROCESSES)
    cpu = 0.0
    for number in range(SAMPLES):
        for process in processes:
            if process.step():
                process.encoded = encode_row(process.row)
        rows = {"process": [process.encoded for process in processes]}
        begin = time.process_time()
        writer.append(START + timedelta(seconds=10 * number), BOOT, number * 10**10, rows)
        cpu += time.process_time() - begin
    size = writer.bytes_written
    writer.close()
    return [
        Figure("append, without the fdatasync", cpu / SAMPLES * 1e3, "ms CPU per sample", 1.0),
        Figure("live", size / SAMPLES / PROCESSES, "bytes per process row", 13),
    ]


def _recompress(root: Path) -> list[Figure]:
    (source,) = root.glob("2*/*/*/sample-*.jsonl.zst")
    target = root / "better"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    names = (str(root), target.name, str(source.relative_to(root)))
    command = [sys.executable, "-c", _CHILD, str(SEALED_LEVEL), *names]
    peak = int(subprocess.run(command, capture_output=True, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = target.stat().st_size
    target.unlink()
    return [
        Figure("recompressed", size / SAMPLES / PROCESSES, "bytes per process row", 10),
        Figure("recompressing an hour, in a child", cpu, "s CPU", 3.0),
        Figure("recompressing, peak memory of the child", peak / 1024, "MB", 60),
    ]


# The child as the writer starts it, and what it took at most (VmHWM, since ru_maxrss counts the parent's fork).
_CHILD = """
import os, sys
from vmsonar_archive.write import rewrite
sys.stdout = open(os.devnull, "w")
rewrite.main([str(os.getppid()), *sys.argv[1:]])
status = open("/proc/self/status").read()
os.write(1, status.split("VmHWM:")[1].split()[0].encode())
"""


def _read(root: Path) -> list[Figure]:
    begin = time.process_time()
    with open_archive(root) as archive:
        rows = sum(len(sample.process) for sample in archive.samples())
    cpu = time.process_time() - begin
    assert rows == SAMPLES * PROCESSES
    return [
        Figure(
            "reading a sealed hour back as records",
            rows / cpu,
            "process rows per CPU s",
            400_000,
            at_least=True,
        )
    ]
