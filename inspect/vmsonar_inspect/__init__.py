"""Explains archives: open any of them as tables with `open_tables`."""

from vmsonar_inspect.tables import Tables, open_tables

__all__ = ["Tables", "open_tables"]
