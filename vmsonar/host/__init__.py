"""The machine as we find it: roots, clocks, identity, users, control groups, mounts, hardware, cloud.

Comes in: /proc, /sys, /etc below roots that can be replaced. Goes out: plain facts. Imports vmsonar_archive only.
"""

__all__ = [
    "cgroups",
    "clock",
    "cloud",
    "files",
    "hardware",
    "identity",
    "lustre",
    "mounts",
    "proc_pid",
    "roots",
    "streams",
    "users",
]
