"""One table as a Parquet file, written completely or not at all; its footer lists its records and their segments."""

import base64
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vmsonar_archive.parquet.schema import arrow, schema_of
from vmsonar_archive.records import FORMAT
from vmsonar_archive.records.ids import ArchiveId
from vmsonar_archive.records.sets import Span
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import FormatError

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


def metadata(footer: Footer) -> dict[bytes, bytes]:
    """The file's own metadata: the footer, and the schema with every unit and meaning."""
    described = schema_of(footer.table)
    return {
        _KEY: msgspec.json.encode(footer),
        b"vmsonar.columns": _columns(described),
        # Written by hand, so that readers get plain strings where we hand over coded ones.
        b"ARROW:schema": base64.b64encode(described.serialize().to_pybytes()),
    }


def _columns(schema: "pa.Schema") -> bytes:
    """Units and meanings for readers that do not know Arrow."""
    texts = {
        field.name: {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        for field in schema
    }
    return msgspec.json.encode(texts)


def read_footer(source: Any) -> Footer:
    """The footer of a Parquet file, given by path or as an open file."""
    import pyarrow.parquet as pq

    try:
        refuse_huge_footer(source)
        known = pq.read_metadata(source).metadata or {}
        footer = msgspec.json.decode(known[_KEY], type=Footer)
    except (KeyError, msgspec.MsgspecError, arrow().ArrowInvalid, OSError) as error:
        raise FormatError(f"{source} is not a table of ours: {error}") from None
    if footer.format > FORMAT:
        raise FormatError(f"{source} is written in format {footer.format}: install a newer vmsonar")
    return footer


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


class TableFile:
    """A Parquet file that appears when it is finished."""

    def __init__(self, path: Path, footer: Footer, *, durable: bool = True) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._schema = _stored(schema_of(footer.table))
        self._output = files.AtomicFile(path, durable=durable)
        self._writer = pq.ParquetWriter(
            self._output.file,
            self._schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=_coded(schema_of(footer.table)),
            column_encoding=_encodings(schema_of(footer.table)),
            store_schema=False,
            write_page_index=True,
            # For readers that have no list of hashes; they cover neither headers nor footer.
            write_page_checksum=True,
        )
        self._writer.add_key_value_metadata(metadata(footer))

    def write(self, table: "pa.Table") -> None:
        """Adds one row group."""
        if len(table):
            self._writer.write_table(table.cast(self._schema), row_group_size=1024 * 1024)

    def finish(self) -> Path:
        """Closes the file and renames it into place."""
        self._writer.close()
        self._output.commit()
        return self._path

    def abandon(self) -> None:
        """Deletes the unfinished file."""
        with suppress(Exception):  # what failed before may fail again here
            self._writer.close()
        self._output.abandon()


def _stored(schema: "pa.Schema") -> "pa.Schema":
    """The schema given to the writer: strings that repeat are dictionary-encoded already."""
    pa = arrow()
    coded = {"archive", "run", "boot", "series_id"}
    return pa.schema(
        [
            pa.field(
                field.name, pa.dictionary(pa.int32(), pa.string()) if field.name in coded else field.type
            )
            for field in schema
        ]
    )


def _coded(schema: "pa.Schema") -> list[str]:
    pa = arrow()
    kinds = (pa.string(), pa.float64())
    return [field.name for field in schema if field.type in kinds]


def _encodings(schema: "pa.Schema") -> dict[str, str]:
    pa = arrow()
    whole = [field.name for field in schema if field.type == pa.int64() or pa.types.is_timestamp(field.type)]
    return dict.fromkeys(whole, "DELTA_BINARY_PACKED")
