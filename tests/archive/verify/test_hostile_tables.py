"""Hostile Parquet in an archive: refused in one line that names the limit, with bounded memory and time."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.parquet.derive import derive_day, journal_tables

from tests.making.bundles import make_archive

pytestmark = pytest.mark.slow

DAY = "2026/11/16"
MEMORY = 200 * 1024  # kB
SECONDS = 20
ROOT = Path(__file__).parents[3]
RUN = """
import contextlib, io, json, resource, sys, time
from vmsonar.cli import run
said, begin = io.StringIO(), sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, -1))
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    code = run(sys.argv[1:])
both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
own = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
print(json.dumps({"code": int(code), "said": said.getvalue(), "memory": max(own, both[1].ru_maxrss),
                  "seconds": sum(one.ru_utime + one.ru_stime for one in both) - begin}))
"""


def _varint(number: int, size: int | None = None) -> bytes:
    """A number of Thrift's compact protocol, in as many bytes as asked for."""
    number = number << 1
    made = bytearray()
    while number >= 0x80 or (size is not None and len(made) < size - 1):
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _huge_footer(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"PAR1")
        file.seek(900_000_000)
        file.write((890_000_000).to_bytes(4, "little") + b"PAR1")


def _footer_bomb(path: Path) -> None:
    """A row group of half a million columns, each in four bytes."""
    columns = 500_000
    count = bytearray()
    number = columns
    while number >= 0x80:
        count.append(number & 0x7F | 0x80)
        number >>= 7
    count.append(number)
    chunks = b"\xfc" + bytes(count) + b"\x26\x00\x00" * columns
    groups = b"\x19\x1c" + b"\x19" + chunks + b"\x16\x00\x16\x00\x00"
    root = b"\x19\x1c\x48\x01a\x15\x00\x00"
    footer = b"\x15\x02" + root + b"\x16\x00" + groups + b"\x00"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _huge_string(path: Path) -> None:
    """A value of 700 MB, in a table whose footer declares next to nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    at = table.schema.get_field_index("run")
    values = ["x" * 700_000_000, *table.column("run").to_pylist()[1:]]
    changed = table.set_column(at, table.schema.field("run"), pa.array(values, pa.string()))
    changed = changed.replace_schema_metadata(pq.read_metadata(path).metadata)
    pq.write_table(changed, path, compression="zstd", write_statistics=False, use_dictionary=["run"])
    total = pq.read_metadata(path).row_group(0).total_byte_size
    content = path.read_bytes()
    assert content.count(_varint(total)) == 1
    path.write_bytes(content.replace(_varint(total), _varint(1000, len(_varint(total)))))


def _many_rows(path: Path) -> None:
    """A row group of 30 million rows, which are all the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = pa.table({"run": pa.array(["x"] * 1_000_000).dictionary_encode()})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as writer:
        for _ in range(30):
            writer.write_table(part)


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "huge_footer": (_huge_footer, "declares a footer of 890000000 bytes, more than 2097152"),
    "footer_bomb": (_footer_bomb, "128 MiB of memory"),
    "huge_string": (_huge_string, "128 MiB of memory"),
    "many_rows": (_many_rows, "has 30000000 rows, its records give 40"),
    "cut": (_cut, "cannot be read as a table"),
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with tables that the journal does not list yet."""
    root = make_archive(tmp_path / "archive")
    derive_day(root, date(2026, 11, 16))
    return root


def _run(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VMSONAR_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _journalled(archive: Path) -> None:
    assert journal_tables(archive, datetime(2026, 11, 18, tzinfo=UTC))


def test_honest_tables_pass_within_the_limits(archive: Path, tmp_path: Path) -> None:
    _journalled(archive)
    run = _run(tmp_path, "verify", "--deep", "archive")
    assert (run["code"], "unchecked" in run["said"]) == (0, False), run["said"]
    assert run["memory"] < MEMORY


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_table_is_refused(case: str, archive: Path, tmp_path: Path) -> None:
    make, reason = CASES[case]
    make(archive / DAY / "samples.parquet")
    _journalled(archive)
    run = _run(tmp_path, "verify", "--deep", "archive")
    assert run["code"] == 1, run["said"]
    (error,) = [line for line in run["said"].splitlines() if line.startswith("error: ")]
    assert reason in error
    assert run["memory"] < MEMORY, run
    assert run["seconds"] < SECONDS, run


@pytest.mark.parametrize(
    ("case", "reason"), [("huge_footer", "more than 2097152"), ("huge_string", "800MB of memory")]
)
def test_readers_of_a_hostile_table_are_bounded(
    case: str, reason: str, archive: Path, tmp_path: Path
) -> None:
    CASES[case][0](archive / DAY / "samples.parquet")
    _journalled(archive)
    for words in (("inspect", "archive"), ("sql", "archive", "SELECT run FROM samples")):
        run = _run(tmp_path, *words)
        assert run["memory"] < 8 * MEMORY, run
        assert run["seconds"] < 3 * SECONDS, run
        assert reason in run["said"]
