"""JSON and Parquet hold the same facts: any sample becomes tables and comes back as it was."""

import string
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from vmsonar_archive.fields import element_of, fields_of
from vmsonar_archive.lines import decode_sample, decode_sysinfo, record_line
from vmsonar_archive.parquet.columns import row_of
from vmsonar_archive.parquet.derive import Derivation
from vmsonar_archive.parquet.schema import own_fields
from vmsonar_archive.records import KINDS, Sample, SysInfo

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENT = st.integers(0, 4 * 10**15).map(
    lambda us: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=3)


def values(kind: Any) -> st.SearchStrategy[Any]:
    simple = {
        int: INT64,
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: TEXT,
        bool: st.booleans(),
    }
    if kind in simple:
        return simple[kind]
    if kind is datetime:
        return MOMENT
    element = element_of(kind)
    if element is not None:
        return st.lists(rows(element), max_size=2)
    if kind == list[list[int]]:
        return st.lists(st.lists(st.integers(0, 100), max_size=2), max_size=2)
    if kind == dict[str, str]:
        return st.dictionaries(NAMES, TEXT, max_size=2)
    return st.dictionaries(
        NAMES, st.integers(0, 9).map(lambda number: msgspec.Raw(str(number).encode())), max_size=2
    )


def rows(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    given_fields = {
        field.name: (values(field.type) | st.none()) if field.nullable else values(field.type)
        for field in fields_of(struct)
        if field.name not in ("time", "seq", "run", "boot", "boottime")
    }
    return st.fixed_dictionaries(given_fields).map(lambda found: struct(**found, **stamp(struct)))


def stamp(struct: type[msgspec.Struct]) -> dict[str, Any]:
    if struct is not SysInfo:
        return {}
    return {"time": datetime(2026, 1, 1, tzinfo=UTC), "seq": 0, "run": "r", "boot": "b", "boottime": 1}


SAMPLES = st.lists(
    st.fixed_dictionaries({kind: st.lists(rows(struct), max_size=1) for kind, struct in KINDS.items()}),
    min_size=1,
    max_size=2,
)


@settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(SAMPLES, st.lists(rows(SysInfo), max_size=2))
def test_there_and_back(parts: list[dict[str, Any]], infos: list[SysInfo]) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    samples = [
        Sample(
            time=start + timedelta(seconds=n), seq=n, run=f"r{n // 2}", boot=f"b{n // 2}", boottime=n, **part
        )
        for n, part in enumerate(parts)
    ]
    infos = [msgspec.structs.replace(info, seq=100 + n) for n, info in enumerate(infos)]
    with TemporaryDirectory() as folder:
        derivation = Derivation("an archive", "2026-01-01", Path(folder), durable=False)
        derivation.add_samples(record_line(sample).rstrip(b"\n") for sample in samples)
        derivation.add_sysinfos(record_line(info).rstrip(b"\n") for info in infos)
        files = derivation.finish([]).files
        assert derivation.result.bad == 0
        for kind, struct in KINDS.items():
            expected = [(sample.seq, row) for sample in map(again, samples) for row in getattr(sample, kind)]
            assert sorted(map(msgspec.json.encode, read(files, kind, struct))) == sorted(
                map(msgspec.json.encode, expected)
            )
        told = [(info.seq, msgspec.json.encode(decode_sysinfo(record_line(info)))) for info in infos]
        found = read(files, "sysinfo", SysInfo)
        assert [(seq, msgspec.json.encode(info)) for seq, info in found] == told


def again(sample: Sample) -> Sample:
    return decode_sample(record_line(sample))


def read(files: dict[str, Path], table: str, struct: type[msgspec.Struct]) -> list[tuple[int, Any]]:
    if table not in files:
        return []
    fields = fields_of(struct) if struct is SysInfo else own_fields(table)
    return [(row["seq"], row_of(struct, fields, row)) for row in pq.read_table(files[table]).to_pylist()]
