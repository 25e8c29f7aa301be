"""Energy and power meters: RAPL, hwmon, and IPMI as a root timer left it."""

from vmsonar.collectors.energy.collector import EnergyCollector, make

__all__ = ["EnergyCollector", "make"]
