"""Explains archives: `open_tables` gives any of them as SQL tables; `inspection.Inspection` says what happened.

Imports vmsonar_archive only. Rooms, from the ground up: tables, facts, advice, inspection.py, then show;
export stands on tables.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmsonar_inspect.tables.database import Tables, open_tables

__all__ = ["Tables", "open_tables"]


def __getattr__(name: str) -> Any:
    """Loads the tables when they are asked for: the card of a command does without them."""
    if name not in __all__:
        raise AttributeError(name)
    from vmsonar_inspect.tables import database

    return getattr(database, name)
