"""Archives, bundles, folders of them and lakes as one set of SQL tables, on DuckDB or Spark.

Comes in: paths and a time frame. Goes out: connections on which every kind is a table and every rollup a view; each
record counted once. Imports vmsonar_archive.
"""

__all__ = [
    "catalog",
    "database",
    "duckdb",
    "lakes",
    "plan",
    "progress",
    "results",
    "spark",
    "stores",
    "views",
    "where",
    "work_units",
]
