"""File systems: which are mounted, and how much room each has.

Comes in: mountinfo and statvfs(3), for what may hang by a helper process. Goes out: filesystem rows and gap rows.
"""

__all__ = ["collector", "helper", "link"]
