"""Takes what the Slurm companion tells, a bounded portion per sample."""

import os

from vmsonar_archive.records import Capability
from vmsonar_archive.system.children import python

from vmsonar.collectors.base import Collector, Rows, Setup, Tick, Trouble, Troubles, capability
from vmsonar.collectors.link import CompanionLink, is_readable
from vmsonar.collectors.slurm.wire import Asked, BatchJobs, from_line
from vmsonar.config.schema import Slurm as Settings
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host

#: Where a companion that runs as a unit of its own listens, below /run.
SLURM_SOCKET = "vmsonar/slurm.sock"
#: Where Slurm's programs are looked for: nobody's PATH decides what is run.
FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/opt/slurm/current/bin", "/usr/local/slurm/bin",
           "/cm/shared/apps/slurm/current/bin")  # fmt: skip
# Lines of one sample, of about 48 KiB and at most 50 rows each; the rest waits with the companion.
_PORTION = 20


def program_path(name: str, settings: Settings) -> str | None:
    """The absolute path of a program of Slurm."""
    folders = FOLDERS if settings.folder is None else (settings.folder,)
    found = (f"{folder}/{name}" for folder in folders)
    return next((path for path in found if os.access(path, os.X_OK)), None)


class SlurmLink(CompanionLink):
    """The companion that asks Slurm: a unit of its own, or our child."""

    def __init__(self, host: Host, settings: Settings, clock: Clock) -> None:
        super().__init__(host.run / SLURM_SOCKET, clock)
        self._settings = settings
        self._waiting: list[bytes] = []

    def may_start(self) -> bool:
        if program_path("sacct", self._settings) or program_path("sinfo", self._settings):
            return True
        self._is("absent", "none of Slurm's programs is there")
        return False

    def own_command(self, descriptor: int) -> list[str]:
        given = self._settings
        words = python(
            "-m", "vmsonar.companion.slurm", "--fd", str(descriptor), f"--interval={float(given.interval)}"
        )
        words += [f"--timeout={float(given.timeout)}", f"--jobs={given.jobs}"]
        more = (("--folder", given.folder), ("--conf", given.conf))
        return words + [f"{name}={value}" for name, value in more if value is not None]

    def portion(self) -> list[bytes]:
        """Some lines; no more are taken from the socket while some wait."""
        self.fill()
        taken, self._waiting = self._waiting[:_PORTION], self._waiting[_PORTION:]
        return taken

    def fill(self) -> None:
        """Connects where that is due, and takes what is there unless enough waits."""
        if len(self._waiting) < _PORTION:
            self._waiting += self.lines()

    def wait(self, seconds: float) -> None:
        """Until it says something, or that long."""
        if self._connection is not None:
            is_readable(self._connection, seconds)


class SlurmCollector(Collector):
    """Rows of jobs and of the cluster, as the companion tells them."""

    name = "slurm"
    kinds = ("batch_job", "cluster")

    def __init__(self, setup: Setup) -> None:
        self._settings = setup.config.slurm
        self._link = SlurmLink(setup.host, self._settings, setup.clock)
        self._asked: dict[str, Asked] = {}
        self._troubles = Troubles(self.name, by_reason=True)

    @property
    def companion_pid(self) -> int | None:
        return self._link.pid

    def collect(self, tick: Tick) -> Rows:
        """What was told since the last sample."""
        rows = Rows()
        for message in map(from_line, self._link.portion()):
            if isinstance(message, Asked):
                self._asked[message.program] = message
            elif message is not None:
                kind = "batch_job" if isinstance(message, BatchJobs) else "cluster"
                for row in message.rows:
                    rows.add(kind, row)
        self._troubles.tell(self._current_troubles(), tick, rows)
        return rows

    def settle(self, seconds: float) -> None:
        self._link.fill()
        self._link.wait(seconds)

    def capabilities(self) -> list[Capability]:
        missing = [name for name in ("sacct", "sinfo") if program_path(name, self._settings) is None]
        where = self._settings.folder or ", ".join(FOLDERS)
        why = (f"no {' and no '.join(missing)} in {where}", "install Slurm's client, or set slurm.folder")
        told = [f"{each.program}: {each.detail}" for each in self._asked.values() if each.state != "ok"]
        wrong = ("; ".join(told), "ask as a user whom Slurm answers: vmsonar slurm shows what it says")
        found = why if missing else wrong if told else ()
        return [capability(self.name, "batch jobs and the cluster, as Slurm tells them", *found)]

    def close(self) -> None:
        self._link.close()

    def _current_troubles(self) -> list[Trouble]:
        if self._link.state != "ok":
            return [("companion" if self._link.state == "companion" else "slurm_absent", self._link.detail)]
        return [
            (f"{each.program}_{each.state}", each.detail)
            for each in self._asked.values()
            if each.state != "ok"
        ]
