"""Rows that are read as columns at once give what decoding them one by one gives, or are left to the decoder."""

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from vmsonar_archive.parquet import decode
from vmsonar_archive.parquet.decode import RowCollector, column, plain_columns
from vmsonar_archive.parquet.schema import own_fields
from vmsonar_archive.records import KINDS

PLAIN = {"pid": 7, "start_ticks": 500, "state": "S", "threads": 2, "resident": 4096}
HOSTILE = [
    b'{"pid":7,"start_ticks":9223372036854775807}',
    b'{"pid":7,"start_ticks":9223372036854775808}',
    b'{"pid":-0,"start_ticks":-9223372036854775808}',
    b'{"pid":7,"start_ticks":-9223372036854775809}',
    b'{"pid":7,"start_ticks":1E2}',
    b'{"pid":7,"start_ticks":1e2}',
    b'{"pid":7,"start_ticks":5.0}',
    b'{"pid":7,"start_ticks":5.5}',
    b'{"pid":7,"start_ticks":null}',
    b'{"pid":7,"start_ticks":true}',
    b'{"pid":7,"start_ticks":"5"}',
    b'{"pid":7}',
    b"{}",
    b'{"pid":7,"start_ticks":5,"threads":null}',
    b'{"pid":7,"pid":8,"start_ticks":5}',
    b'{"start_ticks":5,"pid":7}',
    b'{"pid":7,"start_ticks":5,"unheard_of":3}',
    b'{"pid":7,"start_ticks":5,"unheard_of":{"pid":8}}',
    b'{"p1id":7,"pid":7,"start_ticks":5}',
    b'{"pid1":7,"start_ticks":5}',
    b'{"1pid":7,"start_ticks":5}',
    b'{"Pid":7,"start_ticks":5}',
    b'{"pid":7,"start_ticks":5,"state":""}',
    b'{"pid":7,"start_ticks":5,"state":"S1-X"}',
    b'{"pid":7,"start_ticks":5,"state":"s"}',
    b'{"pid":7,"start_ticks":5,"state":"NaN"}',
    b'{"pid":7,"start_ticks":5,"state":"sX"}',
    b'{"pid":7,"start_ticks":5,"state":"X,1"}',
    b'{"pid":7,"start_ticks":5,"state":"},{\\"pid\\":8"}',
    b'{"pid":7,"start_ticks":5,"state":"\\u0041"}',
    b'{"pid":7,"start_ticks":5,"state":"\\ud800"}',
    b'{"pid":7,"start_ticks":5,"state":"\xc3\xa4"}',
    b'{"pid":7,"start_ticks":5,"sta1te":"S"}',
    b'{"pid":7,"start_ticks":5,"state":7}',
    b'{"pid": 7,"start_ticks":5}',
    b'{"pid":7,"start_ticks":5 }',
    b"[]",
    b"7",
]


def encoded(**changes: Any) -> bytes:
    return json.dumps({**PLAIN, **changes}, separators=(",", ":")).encode()


def decoded(table: str, rows: list[bytes]) -> pa.Table:
    structs = msgspec.json.decode(b"[" + b",".join(rows) + b"]", type=list[KINDS[table]])  # type: ignore[misc]
    return pa.table({field.name: column(field, structs) for field in own_fields(table)})


def collected(table: str, rows: list[bytes]) -> tuple[list[Any], list[int], int]:
    collector = RowCollector(table)
    for stamp, row in enumerate(rows):
        collector.add(stamp, [msgspec.Raw(row)])
    chunk = collector.flush(0)
    if chunk is None:
        return [], [], collector.bad
    return chunk.distinct.take(pa.array(chunk.places)).to_pylist(), list(chunk.stamps), collector.bad


VALUES = st.sampled_from([*HOSTILE, encoded(), encoded(state="R"), encoded(pid=-1, virtual=2**62)])


@settings(max_examples=200, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, max_size=6))
def test_hostile_rows_come_out_the_same_either_way(rows: list[bytes]) -> None:
    quick = collected("process", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "plain_columns", lambda *_: None)
        assert quick == collected("process", rows)


@pytest.mark.parametrize("row", HOSTILE)
def test_one_hostile_row_costs_no_other(row: bytes) -> None:
    found, stamps, bad = collected("process", [encoded(), row, encoded(pid=8)])
    assert [rows["pid"] for rows in found][:: len(found) - 1] == [7, 8]
    assert (stamps, bad) in (([0, 1, 2], 0), ([0, 2], 1))


NUMBERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {"pid": NUMBERS, "start_ticks": NUMBERS},
    optional={"state": st.text("ABCZ09-", max_size=3), "threads": NUMBERS, "read_chars": NUMBERS},
)


@settings(max_examples=100, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_plain_rows_are_taken_without_decoding(rows: list[dict[str, Any]]) -> None:
    texts = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    found = plain_columns(own_fields("process"), texts)
    assert found is not None
    assert found.equals(decoded("process", texts))


def test_rows_of_jobs_with_words_and_flags_are_plain_too() -> None:
    known = b'{"pgid":7,"start_ticks":5,"unattributed":true,"memory":4096,"memory_source":"sum"}'
    rows = [
        known,
        known.replace(b"true", b"false"),
        known.replace(b"sum", b"pss"),
        b'{"pgid":8,"start_ticks":5}',
    ]
    found = plain_columns(own_fields("job"), rows)
    assert found is not None
    assert found.equals(decoded("job", rows))
    assert plain_columns(own_fields("job"), [known.replace(b"sum", b"sUm")]) is None
