"""Tables are the same whether they were made in memory or by way of the disk."""

from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from vmsonar_archive.parquet import derive, sort
from vmsonar_archive.parquet.derive import derive_day

from tests.making.load import Recorder

pytestmark = pytest.mark.slow


def tables(archive: Path, folder: Path) -> dict[str, object]:
    folder.mkdir()
    found = derive_day(archive, date(2026, 11, 1), folder)
    assert found.bad == 0
    assert not [path for path in folder.iterdir() if path.suffix != ".parquet"]
    made = {name: pq.read_table(path) for name, path in found.files.items()}
    # Summaries stand measure by measure within a row group.
    made["series_day"] = made["series_day"].sort_by(
        [(name, "ascending") for name in ("source_table", "number", "measure")]
    )
    return made


def test_spilled_rows_come_back_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path / "archive", 30)
    recorder.record(20)
    # Some go, and others take their place among those that stay.
    recorder.processes = recorder.processes[::2]
    recorder.record(20)
    recorder.close()
    in_memory = tables(tmp_path / "archive", tmp_path / "memory")
    assert in_memory["process"].num_rows == 20 * 30 + 20 * 15  # type: ignore[attr-defined]
    for module, name, limit in (
        (derive, "_COLLECT_BYTES", 2000),
        (derive, "_HELD_BYTES", 20_000),
        (sort, "SPILL_ROWS", 7),
        (sort, "PARTITION_ROWS", 100),
    ):
        monkeypatch.setattr(module, name, limit)
    spilled = tables(tmp_path / "archive", tmp_path / "disk")
    assert pq.ParquetFile(tmp_path / "disk" / "process.parquet").num_row_groups > 5
    assert spilled == in_memory
