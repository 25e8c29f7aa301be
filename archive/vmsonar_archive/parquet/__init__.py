"""The archive as tables: one Arrow schema per kind, derived day by day within a fixed amount of memory.

Comes in: lines of segments. Goes out: Parquet files whose footers name the segments they came from, and per-day
rollups. Imports pyarrow, read, write and below.
"""

__all__ = ["compare", "derive", "files", "measures", "resummarize", "rollup", "schema"]
