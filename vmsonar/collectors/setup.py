"""What a collector is given when it is made."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from vmsonar_archive.ids import SeriesIds

from vmsonar.clock import Clock
from vmsonar.collectors.files import SharedFile
from vmsonar.config import Config
from vmsonar.host import Host


@dataclass(slots=True)
class Setup:
    """The machine, the configuration and the archive that a collector works for."""

    host: Host
    config: Config
    clock: Clock
    ids: SeriesIds
    machine_id: str
    #: The archive that is being written, or None when the sample goes to standard output.
    archive: Path | None
    #: /proc/stat, read once a tick for all who need it.
    proc_stat: SharedFile


def setup_for(
    config: Config,
    host: Host | None = None,
    clock: Clock | None = None,
    ids: SeriesIds | None = None,
    machine_id: str = "",
    archive: Path | None = None,
) -> Setup:
    """A setup with what is usual in all that is not given."""
    host = host or config.host
    return Setup(
        host=host,
        config=config,
        clock=clock or Clock(),
        ids=ids or SeriesIds(UUID(int=0)),
        machine_id=machine_id,
        archive=archive,
        proc_stat=SharedFile(host.proc / "stat"),
    )
