"""GPUs: NVIDIA through NVML, AMD and Intel through sysfs, KFD and the fdinfo of DRM clients."""

from vmsonar.collectors.gpu.collector import GpuCollector, make

__all__ = ["GpuCollector", "make"]
