"""Faults of the disk, by a preloaded library: see shim.py."""
