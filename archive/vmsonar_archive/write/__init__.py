"""The only way into an archive: append, seal, repair, recompress, merge, drop, one writer at a time.

Comes in: encoded rows from the daemon. Goes out: durable segments and journal lines. The thread that appends never
waits for the disk. Imports read and below.
"""

__all__ = [
    "budget",
    "deposit",
    "lock",
    "losses",
    "outputs",
    "repair",
    "rewrite",
    "segment",
    "upkeep",
    "writer",
]
