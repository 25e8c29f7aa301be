"""The tree that Sonar's analysers read: YYYY/MM/DD/0+sample-<host>.json, a line per record."""

from collections.abc import Iterable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.format.layout import day_path
from vmsonar_archive.read.findings import Finding
from vmsonar_archive.read.reader import Archive, open_archive
from vmsonar_archive.records import Sample, SysInfo
from vmsonar_archive.system.files import beneath
from vmsonar_archive.write.outputs import SONAR, guard

from vmsonar_inspect.export.records import by_archive, each_once, file_name
from vmsonar_inspect.tables.where import Origin

#: Kind and host in the names of these files, as their readers look for them.
BATCH_FILES = {"job": ("job", "slurm"), "cluster": ("cluzter", "slurm")}
# Days that are kept open; each costs a descriptor.
_MOST_OPEN = 16


class SonarTree:
    """Writes records as lines below a folder; files appear when all of them are complete."""

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self._folder = folder
        self._force = force
        self._open: dict[Path, BinaryIO] = {}
        self._made: dict[Path, Path] = {}
        self.lines = 0

    def write(self, kind: str, host: str, time: datetime, line: bytes) -> None:
        path = beneath(self._folder, day_path(time.date()), f"0+{kind}-{file_name(host)}.json")
        self._file(path).write(line + b"\n")
        self.lines += 1

    def _file(self, path: Path) -> BinaryIO:
        if path not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            fresh = path not in self._made
            path.parent.mkdir(parents=True, exist_ok=True)
            if fresh:
                guard(path, (), SONAR, force=self._force)
                self._made[path] = path.with_name(f".{path.name}.tmp")
            self._open[path] = self._made[path].open("wb" if fresh else "ab")
        return self._open[path]

    def finish(self) -> None:
        for file in self._open.values():
            file.close()
        for path, temporary in self._made.items():
            temporary.rename(path)

    def abandon(self) -> None:
        """Deletes the unfinished files."""
        for file in self._open.values():
            file.close()
        for temporary in self._made.values():
            temporary.unlink(missing_ok=True)


def export_sonar(
    origins: Iterable[Origin], folder: Path, cluster: str, *, force: bool = False
) -> tuple[SonarTree, list[Finding]]:
    """Writes all records of all origins; each once, in order, and no two machines under one name."""
    tree = SonarTree(folder, force=force)
    findings: list[Finding] = []
    names: set[str] = set()
    try:
        for group in by_archive(origins, findings).values():
            with ExitStack() as stack:
                archives = [stack.enter_context(open_archive(path)) for path in group]
                _export_archive(archives, tree, cluster, names)
                findings += [finding for archive in archives for finding in archive.findings]
        tree.finish()
    except BaseException:
        tree.abandon()
        raise
    return tree, findings


def _export_archive(archives: list[Archive], tree: SonarTree, cluster: str, names: set[str]) -> None:
    identity = archives[0].identity
    sonar = Sonar(cluster, identity.hostname_full or identity.hostname_short or identity.machine_id)
    renamed: dict[str, str] = {}

    def name_of(node: str) -> str:
        """The node's own name, unless another machine of this export has it."""
        if node not in renamed:
            renamed[node] = f"{node}-{identity.archive[:8]}" if node in names else node
            names.add(renamed[node])
        return renamed[node]

    def write(
        kind: Literal["sample", "sysinfo"], record: Sample | SysInfo, attributes: dict[str, Any]
    ) -> None:
        attributes["node"] = name_of(attributes["node"])
        tree.write(kind, attributes["node"], record.time, envelope(kind, attributes))

    for info in each_once(archive.sysinfos() for archive in archives):
        write("sysinfo", info, sonar.sysinfo(info))
    for sample in each_once(archive.samples() for archive in archives):
        write("sample", sample, sonar.sample(sample))
        for kind, attributes in sonar.batch(sample):
            tree.write(*BATCH_FILES[kind], sample.time, envelope(kind, attributes))
