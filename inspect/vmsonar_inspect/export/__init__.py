"""The archive in other tools' layouts: a Parquet lake, CSV, Sonar's tree, OpenMetrics, OTLP.

Comes in: tables and records. Goes out: folders that other tools read. Imports tables.
"""

__all__ = ["csv", "history", "lake", "records", "sonar_tree"]
