"""Judges the facts: rules, the figures behind each verdict, and the size that would have done.

Comes in: facts and rules.yaml. Goes out: verdicts and sizes with their evidence. Imports facts.
"""

__all__ = ["figures", "rules", "verdicts"]
