"""One self-contained HTML page per machine or fleet: text by Python, charts by a small script, nothing from elsewhere.

Comes in: an Inspection. Goes out: one file under a strict content security policy.
"""

__all__ = ["build"]
