"""AMD and Intel GPUs through the kernel: sysfs, KFD and the fdinfo of DRM clients.

Comes in: files. Goes out: readings.
"""

__all__ = ["collector"]
