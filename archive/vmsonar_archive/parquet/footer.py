"""What the footer of a derived table says: which records it holds and which segments they came from."""

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from vmsonar_archive.errors import FormatError
from vmsonar_archive.parquet.schema import arrow, schema_of
from vmsonar_archive.parquet.stamps import Span
from vmsonar_archive.records import FORMAT

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = b"vmsonar.footer"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One segment that the table was made from; the hash is missing while it is still being written."""

    path: str
    sha256: str | None = None


class Footer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the key `vmsonar.footer`, as JSON."""

    format: int = FORMAT
    table: str
    archive: str
    day: str
    sources: list[Source] = []
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
        known = pq.read_metadata(source).metadata or {}
        footer = msgspec.json.decode(known[_KEY], type=Footer)
    except (KeyError, msgspec.MsgspecError, arrow().ArrowInvalid, OSError) as error:
        raise FormatError(f"{source} is not a table of ours: {error}") from None
    if footer.format > FORMAT:
        raise FormatError(f"{source} is written in format {footer.format}: install a newer vmsonar")
    return footer
