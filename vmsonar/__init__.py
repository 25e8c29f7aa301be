"""vmsonar: what runs on the node, and the command line over everything.

Rooms, from the ground up: host, config, collectors, companion and daemon, forward, lifecycle, health; cli.py is the
front door and commands/ the doors behind it.
"""

__version__ = "0.1.0"

__all__ = ["cli"]
