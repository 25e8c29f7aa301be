"""What is sampled: one collector per part of the machine, listed in registry.py.

Comes in: a Tick. Goes out: encoded rows and gap rows; a collector may raise, the guard of the daemon turns that
into a gap. Imports config and host.
"""

__all__ = ["base", "energy", "node", "registry"]
