"""One table as a Parquet file, written completely or not at all; its footer lists its records and their segments."""

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vmsonar_archive.parquet.schema import arrow, schema_of
from vmsonar_archive.records import FORMAT
from vmsonar_archive.records.ids import ArchiveId
from vmsonar_archive.records.sets import Span
from vmsonar_archive.system.errors import FormatError
from vmsonar_archive.system.files import AtomicFile

if TYPE_CHECKING:
    import pyarrow as pa


_KEY = b"vmsonar.footer"
# A row group of a million rows takes about 8 kB; what a footer declares takes 200 times its size in memory.
_MAX_FOOTER = 2 * 1024 * 1024
# The length of the footer and a magic number.
_TAIL_BYTES = 8


class SourceSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One segment that the table was made from; the hash is missing while it is still being written."""

    path: str
    sha256: str | None = None


class Footer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the key `vmsonar.footer`, as JSON."""

    format: int = FORMAT
    table: str
    archive: ArchiveId
    day: str
    sources: list[SourceSegment] = []
    spans: list[Span] = []
    #: Rows and records of the day that no table can hold, as one with a number beyond 64 bits; on `samples` alone.
    left_out: int = 0
    #: The rule that a summary was made by (parquet/rollup.py).
    rule: int = 1


def _metadata(footer: Footer) -> dict[bytes, bytes]:
    """The file's own metadata: the footer, and the schema with every unit and meaning."""
    schema = schema_of(footer.table)
    columns = {
        field.name: {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        for field in schema
    }
    return {
        _KEY: msgspec.json.encode(footer),
        # For readers that do not know Arrow.
        b"vmsonar.columns": msgspec.json.encode(columns),
        # Written by hand, so that readers get plain strings where we hand over coded ones.
        b"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()),
    }


def read_footer(source: Any) -> Footer:
    """The footer of a Parquet file, given by path or as an open file."""
    import pyarrow.parquet as pq

    try:
        refuse_huge_footer(source)
        footer = footer_of(pq.read_metadata(source))
    except (KeyError, msgspec.MsgspecError, arrow().ArrowInvalid, OSError) as error:
        raise FormatError(f"{source} is not a table of ours: {error}") from None
    if footer.format > FORMAT:
        raise FormatError(f"{source} is written in format {footer.format}: install a newer vmsonar")
    return footer


def footer_of(metadata: Any) -> Footer:
    """The footer in a file's metadata."""
    return msgspec.json.decode((metadata.metadata or {})[_KEY], type=Footer)


def refuse_huge_footer(source: Any) -> None:
    """Refuses a file whose footer, which readers hold as a whole, is far larger than any of ours."""
    with nullcontext(source) if hasattr(source, "read") else Path(source).open("rb") as stream:
        if stream.seek(0, os.SEEK_END) >= _TAIL_BYTES:
            stream.seek(-_TAIL_BYTES, os.SEEK_END)
            size = int.from_bytes(stream.read(4), "little")
            if size > _MAX_FOOTER:
                raise FormatError(f"{source} declares a footer of {size} bytes, more than {_MAX_FOOTER}")
        stream.seek(0)


# Measured on an hour of the model load: delta-packed integers take 4.0 bytes a process row, dictionaries 7.3.
_LEVEL = 3
# Columns that are handed over dictionary-encoded.
_CODED = ("archive", "run", "boot", "series_id")


@contextmanager
def table_file(path: Path, footer: Footer, *, durable: bool = True) -> "Iterator[Callable[[pa.Table], None]]":
    """A Parquet file that appears when the block ends without an error; yields what adds a row group."""
    pa = arrow()
    import pyarrow.parquet as pq

    schema = schema_of(footer.table)
    coded = pa.dictionary(pa.int32(), pa.string())
    stored = pa.schema([pa.field(one.name, coded if one.name in _CODED else one.type) for one in schema])
    whole = [one.name for one in schema if one.type == pa.int64() or pa.types.is_timestamp(one.type)]
    with AtomicFile(path, durable=durable) as output:
        writer = pq.ParquetWriter(
            output,
            stored,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=[one.name for one in schema if one.type in (pa.string(), pa.float64())],
            column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
            store_schema=False,
            write_page_index=True,
            # For readers that have no list of hashes; they cover neither headers nor footer.
            write_page_checksum=True,
        )

        def write(table: Any) -> None:
            if len(table):
                writer.write_table(table.cast(stored), row_group_size=1024 * 1024)

        try:
            writer.add_key_value_metadata(_metadata(footer))
            yield write
        except BaseException:
            with suppress(Exception):  # what failed before may fail again here
                writer.close()
            raise
        writer.close()
