"""One CSV for `sql`, `export` and `inspect`."""

import io
from datetime import datetime, timedelta, timezone

from vmsonar_inspect.tables.results import write_csv

NAMES = ["flag", "list", "structure", "time", "zoned", "nothing", "formula", "number", "quoted"]
ROW = [
    True,
    ["a", 1],
    {"cores": 1.5},
    datetime(2026, 11, 16, 12),  # noqa: DTZ001 - as DuckDB tells it
    datetime(2026, 11, 16, 14, tzinfo=timezone(timedelta(hours=2))),
    None,
    "\n=1+1",
    -1,
    'say "a, b"\0',
]


def test_every_kind_of_cell() -> None:
    write_csv(out := io.StringIO(), NAMES, [ROW])
    assert out.getvalue() == (
        "flag,list,structure,time,zoned,nothing,formula,number,quoted\r\n"
        'true,"[""a"",1]","{""cores"":1.5}",2026-11-16T12:00:00.000000Z,2026-11-16T12:00:00.000000Z,,'
        '"\'\n=1+1",-1,"say ""a, b"""\r\n'
    )
