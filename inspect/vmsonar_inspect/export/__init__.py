"""The archive in other tools' layouts: a Parquet lake, CSV, Sonar's tree.

Comes in: tables and records. Goes out: folders that other tools read. Imports tables.
"""

__all__ = ["csv", "lake", "sonar_tree"]
