"""NVIDIA GPUs through NVML, behind one gate that turns every error into a fault of known reach.

Comes in: the driver's library. Goes out: readings. Loaded only where there is a driver.
"""

__all__ = ["collector"]
