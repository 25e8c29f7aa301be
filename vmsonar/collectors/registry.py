"""The explicit list of collectors, in the order in which they run."""

from dataclasses import dataclass
from importlib import import_module

from vmsonar.collectors.base import Collector, Setup
from vmsonar.config.schema import Config


@dataclass(frozen=True, slots=True)
class Entry:
    """A collector: its name, which is also its key below `collectors`, and the module with its `make`."""

    name: str
    module: str
    #: For GPUs: it is wanted only where the configuration names one of these.
    vendors: tuple[str, ...] = ()

    def is_on(self, config: Config) -> bool:
        """Whether the configuration wants it."""
        if getattr(config.collectors, self.name, "auto") == "none":
            return False
        return not self.vendors or any(vendor in config.gpu.vendors for vendor in self.vendors)


#: To add one: its file with a function `make(setup: Setup) -> Collector`, its line here, its test.
#: `process` comes first: it fills in the tick what the others need to know about processes.
COLLECTORS: tuple[Entry, ...] = (
    Entry("process", "vmsonar.collectors.process.collector"),
    Entry("node", "vmsonar.collectors.node"),
    Entry("cpu", "vmsonar.collectors.cpu"),
    Entry("disk", "vmsonar.collectors.disk"),
    Entry("net", "vmsonar.collectors.net"),
    Entry("pressure", "vmsonar.collectors.pressure"),
    Entry("container", "vmsonar.collectors.container.collector"),
    Entry("gpu", "vmsonar.collectors.gpu.nvidia.collector", ("nvidia",)),
    Entry("gpu", "vmsonar.collectors.gpu.drm.collector", ("amd", "intel")),
    Entry("energy", "vmsonar.collectors.energy"),
)


def make_collectors(setup: Setup, entries: tuple[Entry, ...] = COLLECTORS) -> list[Collector]:
    """The collectors that are switched on; the modules of the others are not even imported."""
    return [make(entry, setup) for entry in entries if entry.is_on(setup.config)]


def make(entry: Entry, setup: Setup) -> Collector:
    """One collector of the list."""
    collector: Collector = import_module(entry.module).make(setup)
    return collector
