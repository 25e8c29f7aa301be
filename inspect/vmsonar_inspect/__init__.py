"""Explains archives: `open_tables` gives any of them as SQL tables, `Inspection` says what happened.

Imports vmsonar_archive only. Rooms, from the ground up: tables, facts, advice, then export and show.
"""

from vmsonar_inspect.tables.database import Tables, open_tables

__all__ = ["Tables", "open_tables"]
