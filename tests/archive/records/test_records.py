"""The records keep their promises: units, meanings, names that every SQL takes, pages that are not stale."""

import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import jsonschema
import msgspec
import pytest
from vmsonar_archive.format import lines, reference
from vmsonar_archive.format.lines import (
    BadLine,
    checked,
    decode_sample,
    decode_stamp,
    record_line,
    sample_line,
)
from vmsonar_archive.records import KINDS, ProcessRow, Sample, Stamp, SysInfo
from vmsonar_archive.records.fields import element_of, fields_of
from vmsonar_archive.records.ids import SeriesIds

DOCS = Path(__file__).resolve().parents[3] / "docs"
STAMP = Stamp(
    time=datetime(2026, 11, 16, 14, 0, 0, 250_000, tzinfo=UTC), seq=7, run="r", boot="b", boottime=5
)

STRUCTS = {**KINDS, "stamp": Stamp, "sysinfo": SysInfo}
STRUCTS |= {
    f"{kind}.{field.name}": element
    for kind, struct in list(STRUCTS.items())
    for field in fields_of(struct)
    if (element := element_of(field.type))
}


@pytest.mark.parametrize("kind", STRUCTS)
def test_every_field_has_a_unit_and_a_meaning(kind):
    for field in fields_of(STRUCTS[kind]):
        assert field.unit, field.name
        assert field.meaning, field.name


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_beyond_its_key_may_be_absent(kind):
    """So that a field can be added to a kind without breaking the readers of older archives."""
    required = [field.name for field in fields_of(KINDS[kind]) if not field.nullable]
    assert len(required) <= 3


def test_the_sample_lists_exactly_the_kinds():
    assert list(KINDS) == [name for name in Sample.__struct_fields__ if name not in Stamp.__struct_fields__]


@pytest.mark.parametrize("name", ["format.md", "sample.schema.json", "sysinfo.schema.json"])
def test_generated_pages_are_not_stale(name):
    assert (DOCS / name).read_bytes() == reference.pages()[name], "run: make docs"


def test_the_schema_accepts_what_we_write_and_refuses_what_we_do_not():
    schema = json.loads((DOCS / "sample.schema.json").read_bytes())
    validator = jsonschema.Draft202012Validator(schema)
    row = lines.encode_row(ProcessRow(pid=1, start_ticks=2, user_ticks=3))
    line = json.loads(sample_line(STAMP, {"process": [row]}))
    assert validator.is_valid(line)
    line["process"][0]["pid"] = "one"
    assert not validator.is_valid(line)


def test_the_checksum_is_crc32_of_the_bytes_before_it():
    line = record_line(Sample(**msgspec.structs.asdict(STAMP)))
    body, _, tail = line.rpartition(b',"crc"')
    assert tail == b':"%08x"}\n' % zlib.crc32(body)
    assert json.loads(line)["time"] == "2026-11-16T14:00:00.250000Z"


def test_series_ids_are_uuid5_of_the_documented_names():
    ids = SeriesIds(NAMESPACE_URL)
    assert ids.process("boot", 12, 34) == str(uuid5(NAMESPACE_URL, "process:boot:12:34"))
    assert ids.job("boot", 12, 34) == str(uuid5(NAMESPACE_URL, "job:boot:12:34"))
    assert ids.node("machine") == str(uuid5(NAMESPACE_URL, "node:machine"))


def test_rows_encoded_apart_make_the_same_line_as_a_whole_record():
    rows = [ProcessRow(pid=pid, start_ticks=9, state="R") for pid in (1, 2)]
    apart = sample_line(STAMP, {"process": [lines.encode_row(row) for row in rows], "gpu": []})
    assert apart == record_line(Sample(**msgspec.structs.asdict(STAMP), process=rows))


def test_what_a_later_version_adds_is_skipped():
    body = (
        b'{"time":"2026-11-16T14:00:00Z","seq":1,"run":"r","boot":"b","boottime":1,"quantum":[{"qubits":3}],'
    )
    body += b'"process":[{"pid":1,"start_ticks":2,"aura":{"colour":"blue"}}]'
    sample = decode_sample(checked(lines.finish(body).rstrip()))
    assert sample.process == [ProcessRow(pid=1, start_ticks=2)]


def test_the_stamp_is_read_whatever_the_order_of_the_members():
    ours = record_line(Sample(**msgspec.structs.asdict(STAMP))).rstrip()
    other = b'{"seq":7,"boottime":5,"boot":"b","run":"r","cpu":[],"time":"2026-11-16T14:00:00.25Z"}'
    assert decode_stamp(ours) == decode_stamp(other) == STAMP


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"a":1,"crc":"00000000"}',
        b"[" * 100_000,
        b'{"a":1,"crc":"A702FC6E"}',
        b'{"a":1,"crc":"a702fc6e"} ',
    ],
)
def test_a_line_without_its_checksum_is_refused(line):
    with pytest.raises(BadLine):
        checked(line)


def test_a_deeply_nested_line_is_refused():
    body = b'{"time":' + b"[" * 200_000
    with pytest.raises(BadLine):
        decode_sample(checked(lines.finish(body).rstrip()))
