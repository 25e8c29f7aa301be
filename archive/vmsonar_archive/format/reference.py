"""Generates docs/format.md and the JSON Schemas from the records: `python -m vmsonar_archive.format.reference docs`."""

import sys
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_origin
from uuid import UUID

import msgspec

from vmsonar_archive.format.journal import GENESIS, JournalEntry, line_hash, line_of
from vmsonar_archive.format.lines import finish, record_line
from vmsonar_archive.records import FORMAT, KINDS, Sample, Stamp, SysInfo
from vmsonar_archive.records.fields import element_of, fields_of
from vmsonar_archive.records.ids import SeriesIds

_INTRODUCTION = Path(__file__).with_name("reference.md")
# An unfinished JSON object, as the checksum is taken of it.
_BODY = b'{"a":1'
_NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", datetime: "time"}


def pages() -> dict[str, bytes]:
    """The generated files by name."""
    return {
        "format.md": "".join(_format_page()).encode(),
        "sample.schema.json": _schema(Sample, "sample"),
        "sysinfo.schema.json": _schema(SysInfo, "sysinfo"),
    }


def _format_page() -> Iterator[str]:
    yield _INTRODUCTION.read_text(encoding="utf-8").replace("{FORMAT}", str(FORMAT))
    yield "\n## Test vectors\n\n"
    yield from _vectors()
    yield "\n## The stamp of every record\n\n"
    yield from _table(Stamp)
    yield "\n## Kinds of rows in a sample\n"
    for kind, struct in KINDS.items():
        yield f"\n### {kind}\n\n{_sentence(struct)}\n\n"
        yield from _table(struct)
        yield from _nested(struct)
    yield f"\n## sysinfo\n\n{_sentence(SysInfo)}\n\n"
    yield from _table(SysInfo, skip=Stamp.__struct_fields__)
    yield from _nested(SysInfo)


def _nested(struct: type[msgspec.Struct]) -> Iterator[str]:
    for field in fields_of(struct):
        element = element_of(field.type)
        if element is not None:
            yield f"\n#### Elements of {field.name}\n\n{_sentence(element)}\n\n"
            yield from _table(element)


def _table(struct: type[msgspec.Struct], skip: Collection[str] = ()) -> Iterator[str]:
    yield "| Field | Type | Unit | Sensitivity | Meaning |\n|---|---|---|---|---|\n"
    for field in fields_of(struct):
        if field.name not in skip:
            kind = _type_name(field.type) + ("" if field.nullable else ", required")
            yield f"| `{field.name}` | {kind} | {field.unit} | {field.sensitivity} | {field.meaning} |\n"


def _type_name(kind: Any) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    if get_origin(kind) is list:
        return f"list of {_type_name(get_args(kind)[0])}"
    return "object"


def _sentence(struct: type[msgspec.Struct]) -> str:
    return (struct.__doc__ or "").strip().split("\n")[0]


def _vectors() -> Iterator[str]:
    sample = Sample(
        time=datetime(2026, 11, 16, 14, 0, tzinfo=UTC),
        seq=1,
        run="0" * 32,
        boot="5c6e2a3d-8f3b-4d5e-9a1c-2b7f0e6d4c31",
        boottime=1_000_000_000,
    )
    yield "A sample without rows, as one line (the newline is not shown):\n\n"
    yield f"    {record_line(sample).decode()}"
    yield '\nThe checksum of the body `{"a":1`:\n\n'
    yield f"    {finish(_BODY).decode()}"
    yield "\nSeries ids in the namespace `6ba7b810-9dad-11d1-80b4-00c04fd430c8`:\n\n"
    yield "| Name | Series id |\n|---|---|\n"
    ids = SeriesIds(UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))
    for name, value in (
        ("node:0123456789abcdef0123456789abcdef", ids.node("0123456789abcdef0123456789abcdef")),
        ("process:BOOT:4242:123456", ids.process("BOOT", 4242, 123456)),
        ("job:BOOT:4242:123456", ids.job("BOOT", 4242, 123456)),
        (f"container:{'ab' * 32}", ids.container("ab" * 32)),
        ("gpu:GPU-5c6e2a3d", ids.gpu("GPU-5c6e2a3d")),
    ):
        yield f"| `{name}` | `{value}` |\n"
    entry = JournalEntry(
        op="seal",
        path="2026/11/16/sample-140000-1.jsonl.zst",
        time=sample.time,
        bytes=1,
        sha256="0" * 64,
        identity="1" * 64,
        namespace="2" * 64,
    )
    line = line_of(entry, GENESIS)
    yield "\nA journal line and the hash that the next one carries as `prev`:\n\n"
    yield f"    {line.decode()}\n    {line_hash(line)}\n"


def _schema(record: type[msgspec.Struct], name: str) -> bytes:
    """JSON Schema (2020-12) of one kind of record; what is unknown is allowed."""
    (schema,), components = msgspec.json.schema_components((record,), ref_template="#/$defs/{name}")
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A {name} record of a vmsonar archive, format {FORMAT}",
        **schema,
        "$defs": components,
    }
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=2) + b"\n"


if __name__ == "__main__":
    for name, content in pages().items():
        Path(sys.argv[1], name).write_bytes(content)
