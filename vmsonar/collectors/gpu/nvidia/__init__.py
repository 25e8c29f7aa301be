"""NVIDIA GPUs through NVML, behind one gate: an error says whether a value, a GPU or the driver failed.

Comes in: the driver's library. Goes out: readings. Loaded only where there is a driver.
"""

__all__ = ["collector"]
