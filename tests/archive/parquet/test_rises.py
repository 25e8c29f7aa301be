"""The rise of a counter is told by two engines, Arrow for the sums of a day and SQL for the views: by one rule."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.records import ContainerInfoRow, ContainerRow, JobRow, ProcessRow
from vmsonar_inspect.tables.database import Tables, open_tables

from tests.making.worlds import BOOT, Machine

#: By the number of the series: its counter in one sample after the other, None where it is not in the sample.
VALUES: dict[int, list[int | None]] = {
    1: [0, 1_000, 2_000, 3_000, 4_000, 5_000],
    2: [500, 500, 500, 500, 500, 500],
    3: [9_000, 9_100, 30, 40, 50, 60],  # fell once
    4: [900, 5, 300, 0, 0, 7],  # fell again and again, also to zero
    5: [2**62, 2**62 + 2**40, 2**40, 2**41, 2**41, 2**62],
    6: [10, None, None, 700, 710, 720],  # was away
    7: [800, None, None, 90, 95, 99],  # was away, and fell meanwhile
    8: [None, None, 300, 400, 500, 600],  # begins within the record
    9: [None, None, 300, None, None, None],  # is seen once
    10: [None, None, None, None, 77, 3],  # begins, and falls at once
}


class Counting(Machine):
    """A machine of which only these counters are known."""

    place = 0

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        rows: dict[str, list[Any]] = {"process": [], "job": [], "container": [], "container_info": []}
        for number, values in VALUES.items():
            value = values[self.place]
            if value is None:
                continue
            first = next(place for place, one in enumerate(values) if one is not None)
            # Ten seconds lie between two samples, the first is taken at 110.
            told = {
                "start_ticks": 100 * (105 + 10 * first) if first else 1,
                "user_ticks": value,
                "system_ticks": 0,
                "write_bytes": value,
            }
            rows["process"].append(ProcessRow(pid=number, **told))
            rows["job"].append(JobRow(pgid=number, **told))
            container = f"{number:064}"
            rows["container"].append(ContainerRow(container_id=container, cpu_time=value, write_bytes=value))
            if first == self.place and first:
                info = ContainerInfoRow(series_id=BOOT, container_id=container, started=self.now())
                rows["container_info"].append(info)
        self.place += 1
        return rows


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    root: Path = tmp_path_factory.mktemp("rises") / "archive"
    machine = Counting(root)
    machine.start_daemon()
    machine.run(6)
    machine.stop_daemon()
    with open_tables([root], cache=False) as opened:
        yield opened


@pytest.mark.parametrize(
    ("table", "name"), [("process", "pid"), ("job", "pgid"), ("container", "container_id")]
)
@pytest.mark.parametrize(("measure", "column"), [("cpu", "cpu_seconds"), ("write_bytes", "write_bytes")])
def test_both_engines_say_the_same(tables: Tables, table: str, name: str, measure: str, column: str) -> None:
    named = "container_id" if table == "container" else "number"
    sums = tables.sql(
        f"SELECT {named}, total, maximum FROM {table}_totals WHERE measure = '{measure}' ORDER BY ALL"
    ).fetchall()
    views = tables.sql(
        f"SELECT {name}, SUM({column}), MAX({column} / interval_seconds) FROM {table}_rates GROUP BY 1 ORDER BY ALL"
    ).fetchall()
    assert len(sums) == len(VALUES)
    assert [key for key, *_ in sums] == [key for key, *_ in views]
    for (key, *summed), (_, *seen) in zip(sums, views, strict=True):
        assert seen == [None if one is None else pytest.approx(float(one), rel=1e-9) for one in summed], key


@pytest.mark.parametrize(("table", "known"), [("process", 30 + 100), ("container", 30 + 100 + 30)])
def test_a_reset_counts_only_where_counters_begin_at_zero(tables: Tables, table: str, known: int) -> None:
    key = "container_id = '" + "3".zfill(64) + "'" if table == "container" else "number = 3"
    (total,) = tables.sql(
        f"SELECT total FROM {table}_totals WHERE measure = 'write_bytes' AND {key}"
    ).fetchone()
    assert total == known
