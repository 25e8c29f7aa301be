"""The machine as we find it: roots, clocks, identity, users, control groups, hardware, cloud.

Comes in: /proc, /sys, /etc below roots that can be replaced. Goes out: plain facts. Imports vmsonar_archive only.
"""

__all__ = [
    "cgroups",
    "clock",
    "cloud",
    "files",
    "hardware",
    "identity",
    "proc_pid",
    "roots",
    "streams",
    "users",
]
