"""Renders answers: rows for JSON and CSV, the terminal, the page.

Comes in: an Inspection. Goes out: text; whatever came from an archive is made harmless first. Imports inspection
and below.
"""

__all__ = ["answers", "columns", "order", "reference"]
