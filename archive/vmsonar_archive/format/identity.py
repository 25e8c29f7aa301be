"""Which archive this is and which node it belongs to: archive.json, and the namespace that stays on the node."""

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import msgspec

from vmsonar_archive.format import layout
from vmsonar_archive.records.ids import ArchiveId, HostName, InstanceId, MachineId, told
from vmsonar_archive.records.sample import FORMAT
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import NOT_JSON, FormatError, NewerFormat, VmsonarError

T = TypeVar("T")


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one machine from another."""

    machine_id: MachineId
    instance_id: InstanceId | None = None
    hostname_short: HostName | None = None
    hostname_full: HostName | None = None


class ArchiveIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The content of archive.json; written once."""

    format: int
    archive: ArchiveId
    machine_id: MachineId
    instance_id: InstanceId | None = None
    hostname_short: HostName | None = None
    hostname_full: HostName | None = None
    created: datetime

    def is_of(self, node: NodeIdentity) -> bool:
        """Whether the archive was begun on this machine, and not on one whose image was copied."""
        if self.machine_id != node.machine_id:
            return False
        known = self.instance_id is not None and node.instance_id is not None
        return not known or self.instance_id == node.instance_id


class _FormatNumber(msgspec.Struct):
    """The one field that every version has."""

    format: int


def parse_document(content: bytes, document: type[T], newest: int, wrong: str, where: str) -> T:
    """Decodes a small file of ours; refuses what a later version wrote, and says `wrong` of what is none."""
    try:
        number = msgspec.json.decode(content, type=_FormatNumber).format
        if number > newest:
            raise NewerFormat.at(where, number, newest)
        return msgspec.json.decode(content, type=document)
    except NOT_JSON as error:
        raise FormatError(f"{where} {wrong}: {told(error)}") from None


def parse_identity(content: bytes, where: str) -> ArchiveIdentity:
    """Reads archive.json."""
    return parse_document(content, ArchiveIdentity, FORMAT, "is not an archive's identity", where)


def read_identity(root: Path) -> ArchiveIdentity:
    """The identity of the archive in a folder."""
    path = root / layout.ARCHIVE_FILE
    try:
        content = files.read_inside(root, layout.ARCHIVE_FILE)
    except FileNotFoundError:
        raise VmsonarError(f"{root} is not an archive: it has no {layout.ARCHIVE_FILE}") from None
    except OSError as error:
        raise VmsonarError(f"cannot read {path}: {error.strerror}") from None
    return parse_identity(content, str(path))


def begin(root: Path, node: NodeIdentity, created: datetime) -> ArchiveIdentity:
    """Makes a folder an archive."""
    told_by_node = msgspec.structs.asdict(node)
    identity = ArchiveIdentity(format=FORMAT, archive=str(uuid4()), created=created, **told_by_node)
    _make_namespace(root)
    files.write_whole(root / layout.ARCHIVE_FILE, msgspec.json.encode(identity) + b"\n")
    return identity


def read_namespace(root: Path) -> UUID:
    """The namespace of the archive's series ids; made anew when it is missing or unreadable."""
    try:
        return UUID(files.read_inside(root, layout.NAMESPACE_FILE).decode().strip())
    except (FileNotFoundError, ValueError):
        return _make_namespace(root)


def _make_namespace(root: Path) -> UUID:
    namespace = uuid4()
    files.write_whole(root / layout.NAMESPACE_FILE, f"{namespace}\n".encode(), mode=0o600)
    return namespace


def set_aside(root: Path, identity: ArchiveIdentity) -> Path:
    """Moves a copied machine's archive below earlier/, unchanged; archive.json goes last, so that it can be redone."""
    aside = files.beneath(root, layout.EARLIER_FOLDER, identity.archive)
    files.make_folders(root, aside)
    kept = {layout.EARLIER_FOLDER, layout.LOCK_FILE, layout.ARCHIVE_FILE}
    for entry in sorted(root.iterdir()):
        if entry.name not in kept:
            entry.rename(aside / entry.name)
    (root / layout.ARCHIVE_FILE).rename(aside / layout.ARCHIVE_FILE)
    files.fsync_folder(aside)
    files.fsync_folder(root)
    return aside


def take_back(root: Path, identity: ArchiveIdentity) -> None:
    """Undoes a set_aside() that was interrupted and is not wanted any more: the machine is the archive's after all."""
    aside = files.beneath(root, layout.EARLIER_FOLDER, identity.archive)
    if aside.parent.is_symlink() or aside.is_symlink():
        return
    if not aside.is_dir() or (aside / layout.ARCHIVE_FILE).exists():
        return
    for entry in sorted(aside.iterdir()):
        if not (root / entry.name).exists():
            entry.rename(root / entry.name)
    files.fsync_folder(root)
    with suppress(OSError):  # what has its name taken stays where it is
        aside.rmdir()
