"""GPUs: one collector for NVIDIA through NVML, one for AMD and Intel through sysfs, KFD and the fdinfo of DRM clients.

Comes in: drivers that may hang, load late or break. Goes out: gpu and gpu_process rows, XID events, cards for
sysinfo. Each collector's `collect` runs under a guard of its own, so that a driver that hangs costs only its rows.
"""

__all__ = ["collector", "drm", "nvidia"]
