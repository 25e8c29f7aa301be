"""Other tools' shapes of our records: Sonar's JSON.

Comes in: records in order. Goes out: JSON for Sonar's consumers. Imports records only.
"""

__all__ = ["history", "sonar"]
