"""The explicit list of collectors, in the order in which they run."""

from dataclasses import dataclass
from importlib import import_module

from vmsonar.collectors.base import Collector, Setup
from vmsonar.config.schema import Config


@dataclass(frozen=True, slots=True)
class Entry:
    """A collector: its name, which is also its key below `collectors`, its module, and what makes it there."""

    name: str
    module: str
    make: str = "make"
    #: For GPUs: it is wanted only where the configuration names one of these.
    vendors: tuple[str, ...] = ()

    def is_on(self, config: Config) -> bool:
        """Whether the configuration wants it."""
        if getattr(config.collectors, self.name, "auto") == "none":
            return False
        return not self.vendors or any(vendor in config.gpu.vendors for vendor in self.vendors)


#: To add one: its file with a class or function that takes a Setup and gives a Collector, its line here, its test.
#: `process` comes first: it fills in the tick what the others need to know about processes.
COLLECTORS: tuple[Entry, ...] = (
    Entry("process", "vmsonar.collectors.process.collector"),
    Entry("node", "vmsonar.collectors.node"),
    Entry("cpu", "vmsonar.collectors.cpu", "CpuCollector"),
    Entry("disk", "vmsonar.collectors.disk", "DiskCollector"),
    Entry("filesystem", "vmsonar.collectors.filesystem.collector"),
    Entry("netfs", "vmsonar.collectors.netfs.collector", "NetfsCollector"),
    Entry("net", "vmsonar.collectors.net", "NetCollector"),
    Entry("fabric", "vmsonar.collectors.fabric", "FabricCollector"),
    Entry("pressure", "vmsonar.collectors.pressure", "PressureCollector"),
    Entry("container", "vmsonar.collectors.container.collector"),
    Entry("cgroup", "vmsonar.collectors.container.units", "UnitCollector"),
    Entry("slurm", "vmsonar.collectors.slurm.collector", "SlurmCollector"),
    Entry("gpu", "vmsonar.collectors.gpu.nvidia.collector", vendors=("nvidia",)),
    Entry("gpu", "vmsonar.collectors.gpu.drm.collector", vendors=("amd", "intel")),
    Entry("energy", "vmsonar.collectors.energy"),
)


def make_collectors(setup: Setup, entries: tuple[Entry, ...] = COLLECTORS) -> list[Collector]:
    """The collectors that are switched on; the modules of the others are not even imported."""
    return [make(entry, setup) for entry in entries if entry.is_on(setup.config)]


def make(entry: Entry, setup: Setup) -> Collector:
    """One collector of the list."""
    collector: Collector = getattr(import_module(entry.module), entry.make)(setup)
    return collector
