"""Explains archives: `open_tables` gives any of them as SQL tables; `inspection.Inspection` says what happened.

Imports vmsonar_archive only. Rooms, from the ground up: tables, facts, advice, inspection.py, then show;
export stands on tables.
"""

from vmsonar_inspect.tables.database import Tables, open_tables

__all__ = ["Tables", "open_tables"]
