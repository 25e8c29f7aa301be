"""The folder of a fleet: which places it has, and that it is one."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from vmsonar_archive.format import layout
from vmsonar_archive.format.identity import parse_document
from vmsonar_archive.records.ids import ArchiveId
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.write.outputs import refuse_archive

from vmsonar.host.roots import user_archive

SYSTEM_FLEET = Path("/var/lib/vmsonar-fleet")
MARK = "fleet.json"
FORMAT = 1
#: Archives of machines, evidence, what was refused, uploads that are not complete, what is known of each archive.
FOLDERS = ("archives", "evidence", "refused", "incoming", "state")


class FleetMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of fleet.json."""

    format: int
    #: Where the lake lies when it is not the folder `lake`: an s3:// address.
    lake: str | None = None


def fleet_place(
    given: Path | None, configured: str | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The fleet that is meant: the option, the environment, the configuration, or the usual place."""
    name = given or environment.get("VMSONAR_FLEET") or configured
    if name:
        return Path(name)
    may_write = os.geteuid() == 0 or os.access(SYSTEM_FLEET, os.W_OK)
    return SYSTEM_FLEET if may_write else user_archive(environment).with_name("vmsonar-fleet")


@dataclass(frozen=True, slots=True)
class Fleet:
    """An open fleet; only names, nothing is held."""

    root: Path
    mark: FleetMark

    @property
    def archives(self) -> Path:
        return self.root / "archives"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    @property
    def refused(self) -> Path:
        return self.root / "refused"

    @property
    def incoming(self) -> Path:
        return self.root / "incoming"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def lake(self) -> str:
        """Where the tables of finished days go: a folder, or an s3:// address."""
        return self.mark.lake or str(self.root / "lake")

    def archive(self, archive_id: str) -> Path:
        """The folder of one machine's archive; it may not be there yet."""
        return self.archives / _checked(archive_id)

    def ids(self) -> list[str]:
        """The ids of all archives, sorted."""
        with suppress(FileNotFoundError), os.scandir(self.archives) as entries:
            return sorted(entry.name for entry in entries if _is_archive(entry))
        return []

    def origins(self) -> Iterator[Path]:
        """The folders of all archives: what inspect, sql, export and verify take."""
        return map(self.archive, self.ids())


def open_fleet(root: Path, *, lake: str | None = None, create: bool = False) -> Fleet:
    """Opens the fleet in a folder; with `create` begins one where there is none."""
    try:
        content = files.read_inside(root, MARK)
    except FileNotFoundError:
        if not create:
            raise VmsonarError(
                f"{root} is not a fleet: it has no {MARK}; vmsonar collect --fleet {root} begins one"
            ) from None
        return _begin(root, lake)
    except OSError as error:
        raise VmsonarError(f"cannot open {root / MARK}: {error.strerror}") from None
    mark = parse_document(content, FleetMark, FORMAT, "does not describe a fleet", str(root / MARK))
    if create and lake not in (None, mark.lake):
        mark = msgspec.structs.replace(mark, lake=lake)
        files.write_whole(root / MARK, msgspec.json.encode(mark) + b"\n")
    return Fleet(root, mark)


def _begin(root: Path, lake: str | None) -> Fleet:
    refuse_archive(root)
    if root.is_dir() and any(root.iterdir()):
        raise UsageError(f"{root} is neither empty nor a fleet: name a folder of its own")
    files.make_folders(root, root)
    for name in FOLDERS:
        files.make_folders(root, root / name)
    mark = FleetMark(format=FORMAT, lake=lake)
    # Of several that begin at once each writes the same.
    with tempfile.NamedTemporaryFile(dir=root, prefix=".", suffix=".tmp", delete=False) as file:
        file.write(msgspec.json.encode(mark) + b"\n")
        file.flush()
        os.fchmod(file.fileno(), files.FILE_MODE)
        os.fsync(file.fileno())
    files.rename_durably(Path(file.name), root / MARK)
    return Fleet(root, mark)


def _checked(archive_id: str) -> str:
    try:
        return msgspec.convert(archive_id, ArchiveId)
    except msgspec.ValidationError:
        raise UsageError(f"{archive_id[:80]!r} is not the id of an archive") from None


def _is_archive(entry: "os.DirEntry[str]") -> bool:
    with suppress(UsageError):
        return _checked(entry.name) == entry.name and os.path.exists(f"{entry.path}/{layout.ARCHIVE_FILE}")
    return False
