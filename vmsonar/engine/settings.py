"""What a companion is told when it is started."""

from dataclasses import dataclass
from pathlib import Path

from vmsonar.engine.api import ANSWER_SECONDS
from vmsonar.engine.labels import DEFAULT_LABELS
from vmsonar.host import Host


@dataclass(frozen=True, slots=True)
class Settings:
    """What to pass on, and how long to wait."""

    labels: tuple[str, ...] = DEFAULT_LABELS
    command_line: str = "program"
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    answer_seconds: float = ANSWER_SECONDS
    #: The event stream is asked for in windows: one that does not end in time is an engine that hangs.
    window_seconds: float = 30.0
    first_wait: float = 0.25
    longest_wait: float = 5.0

    @property
    def host(self) -> Host:
        return Host(proc=self.proc, sys=self.sys)
