"""The serving half: answers about a fleet over HTTP, prepared in the background, each shown to those whom it concerns.

Comes in: the archives of a fleet, questions, uploads. Goes out: the documents of `inspect --json`, the dashboard, and
receipts of what was uploaded (through `fleet.intake`). Who may see a row is decided in one place, the view that every
question reads (`prepared.Seen`).
"""

__all__ = ["access", "app", "prepared", "server"]
