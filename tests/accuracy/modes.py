"""The ways in which a recorder can run: how often, as whom, with which sources, and how its life goes."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

#: Not needed for jobs: left out, so that a dozen recorders at once stay light.
_UNUSED = ("cpu", "disk", "net", "pressure", "container", "gpu", "energy", "filesystem", "netfs")


@dataclass(frozen=True)
class Mode:
    """One recorder beside the others."""

    interval: int = 10
    as_root: bool = False
    lifeline: bool = False
    accounts: bool = False
    #: `steady`; `sigterm` and `sigkill` are ended and started again in the middle; `cron` is `vmsonar sample`.
    life: str = "steady"

    @property
    def sources(self) -> str:
        return "accounts" if self.accounts else "lifeline" if self.lifeline else "samples"

    @property
    def name(self) -> str:
        user = "root" if self.as_root else "nobody"
        words = [f"{self.interval}s", user, self.sources]
        return "-".join(words if self.life == "steady" else [*words, self.life])

    def config(self, socket: Path) -> str:
        """The configuration file; accounts come from that socket, where the recorder takes any."""
        tree: dict[str, Any] = {"log": "warning", "collectors": dict.fromkeys(_UNUSED, "none")}
        tree["lifeline"] = {"connector": "auto" if self.lifeline else "none"}
        use = {"use": "auto", "socket": str(socket)} if self.accounts else {"use": "none"}
        tree["accounts"] = {**use, "start": "none"}
        return yaml.safe_dump(tree)


SOURCES = ((False, False), (True, False), (True, True))
STEADY = tuple(
    Mode(interval, as_root, lifeline, accounts)
    for interval, as_root, (lifeline, accounts) in product((1, 10), (True, False), SOURCES)
)
#: Restarts and cron, with and without the lifeline.
LIVES = tuple(
    Mode(interval, False, lifeline, False, life)
    for life, interval in (("sigterm", 1), ("sigkill", 1), ("sigkill", 10), ("cron", 4))
    for lifeline in (False, True)
    if not (life == "cron" and lifeline)
)
ALL: tuple[Mode, ...] = (*STEADY, *LIVES)
#: Few enough for every change: whoever hears of every birth and death, steadily, at both intervals. What samples alone
#: and restarts come to is on the page.
CHOSEN: tuple[Mode, ...] = (
    Mode(1, lifeline=True),
    Mode(10, lifeline=True),
    Mode(10, as_root=True, lifeline=True),
    Mode(1, lifeline=True, accounts=True),
    Mode(10, lifeline=True, accounts=True),
)
