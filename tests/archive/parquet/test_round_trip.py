"""JSON and Parquet hold the same facts: any sample becomes tables and comes back as it was."""

import string
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_origin

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from vmsonar_archive.format.lines import decode_sample, decode_sysinfo, record_line
from vmsonar_archive.parquet.derive import Derivation
from vmsonar_archive.parquet.schema import STAMP_FIELDS, own_fields
from vmsonar_archive.records import KINDS, Sample, SysInfo
from vmsonar_archive.records.fields import Field, element_of, fields_of

EXTREMES = [-(2**63), 2**63 - 1, -1, 0, 1, 2**53 + 1]
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(EXTREMES)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
# Few texts are frequent, so that series meet again.
TEXT = st.sampled_from(["", "a"]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENT = st.integers(0, 4 * 10**15).map(
    lambda us: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=3)
START = datetime(2026, 1, 1, tzinfo=UTC)


def values(kind: Any) -> st.SearchStrategy[Any]:
    simple = {int: INT64, float: FLOAT, str: TEXT, bool: st.booleans(), datetime: MOMENT}
    if kind in simple:
        return simple[kind]
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


@cache
def rows(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    given_fields = {
        field.name: (values(field.type) | st.none()) if field.nullable else values(field.type)
        for field in fields_of(struct)
        if field.name not in STAMP_FIELDS
    }
    return st.fixed_dictionaries(given_fields).map(lambda found: struct(**found, **stamp(struct)))


def stamp(struct: type[msgspec.Struct]) -> dict[str, Any]:
    if struct is not SysInfo:
        return {}
    return {"time": START, "seq": 0, "run": "r", "boot": "b", "boottime": 1}


def samples(kinds: Iterable[str], most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Up to four samples, two of each boot, with some rows of these kinds."""
    parts = {kind: st.lists(rows(KINDS[kind]), max_size=most) for kind in kinds}
    return st.lists(st.fixed_dictionaries(parts), min_size=1, max_size=4)


BRIEF = settings(
    max_examples=20, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
LONG = settings(BRIEF, max_examples=1000)


@pytest.mark.parametrize("kind", KINDS)
@BRIEF
@given(st.data())
def test_there_and_back(kind: str, data: st.DataObject) -> None:
    there_and_back(data.draw(samples([kind], 3)), [])


@BRIEF
@given(st.lists(rows(SysInfo), min_size=1, max_size=3))
def test_descriptions_there_and_back(infos: list[SysInfo]) -> None:
    there_and_back([], infos)


@pytest.mark.chaos
@LONG
@given(samples(KINDS, 2), st.lists(rows(SysInfo), max_size=2))
def test_whole_samples_there_and_back(parts: list[dict[str, Any]], infos: list[SysInfo]) -> None:
    there_and_back(parts, infos)


def there_and_back(parts: list[dict[str, Any]], infos: list[SysInfo]) -> None:
    samples = [
        Sample(
            time=START + timedelta(seconds=n), seq=n, run=f"r{n // 2}", boot=f"b{n // 2}", boottime=n, **part
        )
        for n, part in enumerate(parts)
    ]
    infos = [msgspec.structs.replace(info, seq=100 + n) for n, info in enumerate(infos)]
    with TemporaryDirectory() as folder:
        files = derive(Path(folder), samples, infos)
        for kind, struct in KINDS.items():
            expected = [(sample.seq, row) for sample in map(again, samples) for row in getattr(sample, kind)]
            assert sorted(map(msgspec.json.encode, read(files, kind, struct))) == sorted(
                map(msgspec.json.encode, expected)
            )
        told = [(info.seq, msgspec.json.encode(decode_sysinfo(record_line(info)))) for info in infos]
        found = read(files, "sysinfo", SysInfo)
        assert [(seq, msgspec.json.encode(info)) for seq, info in found] == told


def derive(folder: Path, samples: list[Sample], infos: list[SysInfo]) -> dict[str, Path]:
    derivation = Derivation("an archive", "2026-01-01", folder, durable=False)
    derivation.add_samples(record_line(sample).rstrip(b"\n") for sample in samples)
    derivation.add_sysinfos(record_line(info).rstrip(b"\n") for info in infos)
    result = derivation.finish([])
    assert result.bad == 0
    return result.files


def again(sample: Sample) -> Sample:
    return decode_sample(record_line(sample))


def read(files: dict[str, Path], table: str, struct: type[msgspec.Struct]) -> list[tuple[int, Any]]:
    if table not in files:
        return []
    fields = fields_of(struct) if struct is SysInfo else own_fields(table)
    return [(row["seq"], row_of(struct, fields, row)) for row in pq.read_table(files[table]).to_pylist()]


def row_of(struct: type[msgspec.Struct], fields: Sequence[Field], values: dict[str, Any]) -> msgspec.Struct:
    """The row that a line of a table was made from."""
    given = {field.name: _given(field, values.get(field.name)) for field in fields}
    return msgspec.convert({name: value for name, value in given.items() if value is not None}, struct)


def _given(field: Field, value: Any) -> Any:
    if value is None or get_origin(field.type) is not dict:
        return value
    if get_args(field.type)[1] is str:
        return dict(value)
    return msgspec.json.decode(value, type=dict[str, msgspec.Raw])
