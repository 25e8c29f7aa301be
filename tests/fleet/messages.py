"""What a forwarder of the native dialect sends, as messages."""

import base64
from dataclasses import dataclass
from pathlib import Path

import msgspec
from vmsonar_archive.format.lines import decode_stamp
from vmsonar_archive.read.reader import open_archive

from vmsonar.fleet.stream import RecordHeaders, read_headers
from vmsonar.forward.translate import split_native

Message = tuple[str, RecordHeaders, bytes]


def messages(root: Path, limit: int | None = None) -> list[Message]:
    """What a forwarder of the native dialect sends, with records divided where a limit is given."""
    found = []
    with open_archive(root) as archive:
        identity = base64.b64encode((root / "archive.json").read_bytes()).decode()
        for kind in ("sysinfo", "sample"):
            for segment in archive.segments(kind):
                for line in archive.lines(segment):
                    stamp = decode_stamp(line)
                    parts = split_native(line, limit) if limit and kind == "sample" else [line]
                    for number, part in enumerate(parts, 1):
                        given = {"archive": archive.identity.archive, "run": stamp.run, "boot": stamp.boot,
                                 "seq": str(stamp.seq), "identity": identity}  # fmt: skip
                        given |= {"part": f"{number}/{len(parts)}"} if len(parts) > 1 else {}
                        found.append((kind, read_headers(given), part))
    return found


def as_somebody_else(message: Message) -> Message:
    """The same record, said to be of another machine."""
    kind, headers, line = message
    other = base64.b64decode(headers.identity).replace(b'"machine_id":"', b'"machine_id":"f')
    return kind, msgspec.structs.replace(headers, identity=base64.b64encode(other).decode()), line


@dataclass
class Given:
    """A message as the library gives it."""

    kind: str
    said: RecordHeaders
    line: bytes
    number: int

    def topic(self) -> str:
        return f"c.{self.kind}"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self.line

    def headers(self) -> list[tuple[str, bytes]]:
        names = ("archive", "run", "boot", "seq", "identity")
        return [(name, str(getattr(self.said, name)).encode()) for name in names]
