"""What happened, as data: the machine, jobs, containers, GPUs, events, energy, use over time.

Comes in: tables. Goes out: the Structs of model.py, whose units and titles drive every view. Imports tables.
"""

__all__ = [
    "energy",
    "events",
    "fields",
    "jobs",
    "machine",
    "model",
    "programs",
    "queries",
    "stories",
    "timeline",
    "units",
]
