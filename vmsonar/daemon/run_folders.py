"""Where `vmsonar run` keeps its records: a folder for each, under the user's state directory, the newest kept."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vmsonar.host.roots import user_archive

#: Runs that are kept, and the bytes that all of them may take.
KEPT = 20
MOST_BYTES = 2**30


class RunFolders:
    """The folders of one user; the name of each begins with its time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls, environment: Mapping[str, str] = os.environ) -> "RunFolders":
        return cls(user_archive(environment).with_name("vmsonar-runs"))

    def begin(self, command: str) -> Path:
        """The folder of a new run."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = "".join(letter if letter.isalnum() else "-" for letter in os.path.basename(command))[:24]
        seconds, rest = divmod(time.time_ns(), 10**9)
        when = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{rest // 10**3:06d}"
        folder = self.root / f"{when}-{os.urandom(2).hex()}-{name}"
        folder.mkdir(mode=0o700)
        return folder

    def newest_first(self) -> list[Path]:
        """Every run that has a record."""
        with suppress(OSError):
            found = [path for path in self.root.iterdir() if (path / "archive.json").is_file()]
            return sorted(found, key=lambda path: path.name, reverse=True)
        return []

    def prune(self, own: Path, keep: int = KEPT, most: int = MOST_BYTES) -> None:
        """Removes the oldest beyond a count or a size; our own, the newest, and one that is being recorded, stay."""
        with suppress(OSError):
            folders = sorted((path for path in self.root.iterdir() if path.is_dir()), reverse=True)
            size = 0
            for place, folder in enumerate(folders):
                size += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                if place and folder != own and (place >= keep or size > most) and not _is_written(folder):
                    from shutil import rmtree  # here, because a command waits for us

                    rmtree(folder, ignore_errors=True)


def _is_written(folder: Path) -> bool:
    """Whether somebody holds the writer's lock."""
    import fcntl

    with suppress(FileNotFoundError), (folder / "writer.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
