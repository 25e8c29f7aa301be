"""Packs an archive into one canonical, verifiable tar file while it is being written.

Comes in: an archive, options, a key. Goes out: a bundle, brought to a file or handed to send. As root it works with
the rights of the archive's owner. Imports parquet, read, write and below.
"""

__all__ = ["make", "plan", "redact", "select", "worker", "write"]
