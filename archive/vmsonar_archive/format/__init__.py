"""The bytes of an archive and a bundle, and nothing else: names, lines, frames, journal, identities, tar headers.

Comes in: records, or bytes that may be damaged or hostile. Goes out: bytes, or values that say what is wrong with
them. Opens no archive. Imports system and records.
"""

__all__ = ["bag", "blocks", "frames", "identity", "journal", "layout", "lines", "ssh_signature"]
