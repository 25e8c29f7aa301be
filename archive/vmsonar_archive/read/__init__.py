"""Reads whatever is readable of an archive, in a folder or inside a bundle, in order and each record once.

Comes in: a path. Goes out: samples, sysinfo records and findings; damage is a finding, never an exception. Imports
format and below.
"""

__all__ = ["endings", "findings", "idleness", "reader", "source", "tar_walk"]
