"""The tag files of a BagIt bag (RFC 8493), in the one form in which we write and accept them."""

import re
from collections.abc import Iterable, Mapping

#: bagit.txt, to the byte.
DECLARATION = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"

# 100,000 lines of the longest kind.
MAX_BYTES = 20 * 1024 * 1024

_LINE = re.compile(rb"([0-9a-f]{64})  ([A-Za-z0-9._+=/-]{1,120})")


class BadManifest(ValueError):
    """A manifest that is not as we write them."""


def encode(hashes: Iterable[tuple[str, str]]) -> bytes:
    """The lines of a manifest, from names and SHA-256 sums."""
    return b"".join(b"%b  %b\n" % (digest.encode(), name.encode()) for name, digest in hashes)


def decode(content: bytes) -> dict[str, str]:
    """Names and SHA-256 sums in their order; refuses what encode() would not write."""
    found: dict[str, str] = {}
    *lines, rest = content.split(b"\n")
    if rest:
        raise BadManifest("its last line does not end")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadManifest(f"line {number} is not a SHA-256 sum and a name")
        name = match[2].decode()
        if name in found:
            raise BadManifest(f"line {number} lists {name} a second time")
        found[name] = match[1].decode()
    return found


def bag_info(archive: str, sizes: Mapping[str, int]) -> bytes:
    """bag-info.txt: whose it is, and the number of bytes and files in the payload."""
    oxum = f"{sum(sizes.values())}.{len(sizes)}"
    return (
        f"Bag-Software-Agent: vmsonar\nExternal-Identifier: urn:uuid:{archive}\nPayload-Oxum: {oxum}\n"
    ).encode()
