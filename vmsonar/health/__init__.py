"""The recorder's health (status) and what can be collected here (doctor).

Comes in: an archive, its lock, capabilities of collectors and teardown. Goes out: reports with remedies.
Imports lifecycle and below.
"""

__all__ = ["doctor", "status"]
