"""Bundling and verifying against cp, sha256sum and zstd over the same bytes, in the same run; medians of five."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.journal import SEAL, Journal, JournalEntry
from vmsonar_archive.format.layout import SegmentName
from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.write.budget import Budget
from vmsonar_archive.write.rewrite import examine
from vmsonar_archive.write.writer import ArchiveWriter

from bench import Figure
from tests.making.load import BOOT, START, make_processes

PROCESSES = 500
SAMPLES = 360
TIMES = 5
BUNDLED_BYTES = 10**9
VERIFIED_BYTES = 40 * 10**6
MEMORY = 200.0

_BUNDLE = (
    "import sys; from vmsonar.cli import main; main(['bundle', '--archive', sys.argv[1], '-o', sys.argv[2]])"
)
_VERIFY = "import sys; from vmsonar.cli import main; main(['verify', *sys.argv[1:]])"


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        hour = _make_hour(Path(folder) / "hour")
        large = _repeat(hour, Path(folder) / "large", BUNDLED_BYTES)
        figures = _bundling(large, Path(folder))
        shutil.rmtree(large)
        return [*figures, *_verifying(_repeat(hour, Path(folder) / "small", VERIFIED_BYTES), Path(folder))]


def _make_hour(root: Path) -> Path:
    """One segment of the model load."""
    writer = ArchiveWriter(
        root,
        NodeIdentity(machine_id="0" * 32),
        Budget(max_bytes=2**40, min_free=0),
        fdatasync=lambda _fd: None,
    )
    processes = make_processes(PROCESSES)
    for number in range(SAMPLES):
        for process in processes:
            if process.step():
                process.encoded = encode_row(process.row)
        rows = {"process": [process.encoded for process in processes]}
        writer.append(START + timedelta(seconds=9.9 * number), BOOT, number * 10**10, rows)
    writer.close()
    return root


def _repeat(hour: Path, root: Path, size: int) -> Path:
    """An archive of so many bytes: the same hour under other names."""
    segment = max(hour.glob("2*/*/*/sample-*.zst"), key=lambda path: path.stat().st_size)
    with segment.open("rb") as file:
        sealed, _ = examine(file, "")
    root.mkdir()
    shutil.copy(hour / "archive.json", root)
    journal = Journal(root, lambda _point: None)
    for number in range(max(1, size // sealed.bytes)):
        name = SegmentName.of("sample", START + timedelta(hours=number), 1 + number * SAMPLES)
        (root / name.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(segment, root / name.path)
        entry = JournalEntry.of(SEAL, sealed, START)
        journal.append(type(entry)(**{**_fields(entry), "path": name.path}))
    journal.close()
    os.sync()
    return root


def _fields(entry: object) -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}  # type: ignore[attr-defined]


def _timed(*commands: list[str | Path]) -> tuple[float, float]:
    """Wall and CPU seconds of commands run one after the other."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    for command in commands:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _peak(code: str, *arguments: str | Path) -> float:
    """Peak memory in MB of a Python program (proc_pid_status(5))."""
    tail = "; print(int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]))"
    wrapped = code.replace("import main; main(", "import run; run(") + tail
    done = subprocess.run(
        [sys.executable, "-c", wrapped, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1]) / 1024


def _bundling(archive: Path, folder: Path) -> list[Figure]:
    ours, theirs = [], []
    files = [path for path in archive.rglob("*") if path.is_file()]
    for number in range(TIMES):
        copy = folder / f"copy{number}"
        theirs.append(_timed(["cp", "-r", archive, copy], ["sha256sum", *files], ["sync", "-f", copy]))
        shutil.rmtree(copy)
        output = folder / f"{number}.tar"
        ours.append(_timed([sys.executable, "-c", _BUNDLE, archive, output]))
        output.unlink()
    peak = _peak(_BUNDLE, archive, folder / "peak.tar")
    quick = [_timed([sys.executable, "-c", _VERIFY, "--quick", folder / "peak.tar"]) for _ in range(TIMES)]
    sums = [_timed(["sha256sum", folder / "peak.tar"]) for _ in range(TIMES)]
    (folder / "peak.tar").unlink()
    return [
        Figure("bundle 1 GB, wall, to cp + sha256sum + sync", _ratio(ours, theirs, 0), "times", 1.5),
        Figure("bundle 1 GB, CPU, to cp + sha256sum + sync", _ratio(ours, theirs, 1), "times", 1.5),
        Figure("bundle 1 GB, peak memory", peak, "MB", MEMORY),
        Figure("verify --quick of 1 GB, CPU, to sha256sum", _ratio(quick, sums, 1), "times", 0.1),
        Figure("verify --quick of 1 GB", median(cpu for _, cpu in quick), "s CPU"),
    ]


def _ratio(ours: list[tuple[float, float]], theirs: list[tuple[float, float]], which: int) -> float:
    return median(one[which] for one in ours) / median(one[which] for one in theirs)


def _verifying(archive: Path, folder: Path) -> list[Figure]:
    bundle = folder / "small.tar"
    _timed([sys.executable, "-c", _BUNDLE, archive, bundle])
    segments = sorted(archive.glob("2*/*/*/*.zst"))
    one_core = ["taskset", "-c", "0"]
    ours, deep, theirs = [], [], []
    for _ in range(TIMES):
        theirs.append(_timed([*one_core, "sha256sum", *segments], [*one_core, "zstd", "-q", "-t", *segments]))
        ours.append(_timed([sys.executable, "-c", _VERIFY, bundle]))
        deep.append(_timed([sys.executable, "-c", _VERIFY, "--deep", bundle]))
    rows = len(segments) * SAMPLES * PROCESSES
    return [
        Figure("verify, wall, to sha256sum + zstd -t on one core", _ratio(ours, theirs, 0), "times", 1.5),
        Figure("verify, CPU, to sha256sum + zstd -t", _ratio(ours, theirs, 1), "times"),
        Figure("verify, peak memory", _peak(_VERIFY, bundle), "MB", MEMORY),
        Figure(
            "verify --deep", rows / median(wall for wall, _ in deep), "rows per second", 1e6, at_least=True
        ),
        Figure("verify --deep, per core", rows / median(cpu for _, cpu in deep), "rows per CPU second"),
    ]
