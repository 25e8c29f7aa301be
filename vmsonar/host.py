"""Where the machine's facts are read from; handed in, so that a fixture tree can stand for a machine."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """The roots of one machine."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    etc: Path = Path("/etc")
    run: Path = Path("/run")

    @property
    def is_this_machine(self) -> bool:
        """Whether kept descriptors and system calls speak of the same machine as the roots."""
        return self.proc == Path("/proc")
