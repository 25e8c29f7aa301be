"""Started as root, a command works with the rights of whoever owns the archive (credentials(7), setresuid(2)).

An archive belongs to somebody less trusted than root, who can put a link, a FIFO or a device wherever a file is
expected, and exchange folders while we look. With their rights we can do no more than they could themselves. Every
command calls one of the first two functions before it opens an archive; opening one as root without is refused
(files.open_root).
"""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError

ROOT = 0


def work_as_owner(paths: Sequence[Path | str], *, output: bool = False) -> None:
    """Takes on the rights of the folders' owner for good; with an output, until it is published.

    Bundles are plain files and need nothing of the kind.
    """
    if os.geteuid() != ROOT:
        return
    owners = {folder: os.stat(folder) for folder in map(Path, paths) if folder.is_dir()}
    others = {status.st_uid: folder for folder, status in owners.items()}
    if len(others) > 1:
        said = " and ".join(f"{folder} to {user_name(uid)}" for uid, folder in sorted(others.items()))
        raise VmsonarError(
            f"{said}: as root, folders of different owners are read one at a time; or make bundles of them first"
        )
    for folder, status in owners.items():
        if status.st_uid != ROOT:
            _become(folder, status, forever=not output)
            return


def write_as_owner(root: Path) -> str | None:
    """The same for whoever writes an archive that may be still to come; returns the owner's name if it is another."""
    if os.geteuid() != ROOT:
        return None
    there = _nearest(root)
    status = os.stat(there)
    if status.st_uid != ROOT:
        _become(there, status, forever=True)
        return user_name(status.st_uid)
    refuse_exchangeable(there)
    return None


def refuse_to_become_another(root: Path) -> None:
    """Refuses, as root, an archive of somebody else: rights once given up do not come back."""
    if os.geteuid() == ROOT != (uid := os.stat(_nearest(root)).st_uid):
        raise VmsonarError(
            f"{root} belongs to {user_name(uid)}: restart vmsonar to record there with their rights"
        )


def _nearest(root: Path) -> Path:
    """The folder, or the one above it that exists."""
    return next(path for path in (root, *root.absolute().parents) if path.is_dir())


def refuse_exchangeable(folder: Path) -> None:
    """Refuses, as root, a folder that somebody else could put another in place of while we write there."""
    # By its name and by where that leads: whoever owns a folder above it can put a link there.
    for above in (*folder.absolute().parents, *folder.resolve().parents):
        owner = os.stat(above).st_uid
        if os.geteuid() == ROOT != owner:
            raise VmsonarError(
                f"{folder} lies in {above} of {user_name(owner)}, who could exchange it while root writes there: "
                f"choose a place of root's, or do this as {user_name(owner)}"
            )


def make_for_owner(state: Path, archive: Path) -> None:
    """Makes a folder that belongs to the archive's owner; as root, one that belongs to somebody else is refused."""
    if os.geteuid() != ROOT or not archive.is_dir():
        return
    owner, above = os.stat(archive), state.absolute().parent
    if owner.st_uid == ROOT:
        return
    if not state.exists() and above.is_dir() and os.stat(above).st_uid == ROOT:
        with files.held(files.open_root(above)) as parent:
            os.mkdir(state.name, files.FOLDER_MODE, dir_fd=parent)
            with files.held(os.open(state.name, files.FOLDER, dir_fd=parent)) as made:
                os.fchown(made, owner.st_uid, owner.st_gid)
    if state.exists() and os.stat(state).st_uid != owner.st_uid:
        raise VmsonarError(
            f"{state} belongs to {user_name(os.stat(state).st_uid)}, the archive {archive} to "
            f"{user_name(owner.st_uid)}: name another folder, or chown -R {user_name(owner.st_uid)} {state}"
        )


def become(uid: int, gid: int, *, forever: bool = True) -> None:
    """Makes this process the user's; if not for ever, it can still be root's for a moment."""
    os.seteuid(ROOT)
    os.setgroups([])
    os.setresgid(gid, gid, gid if forever else ROOT)
    os.setresuid(uid, uid, uid if forever else ROOT)


def _become(folder: Path, status: os.stat_result, *, forever: bool) -> None:
    uid = status.st_uid
    try:
        become(uid, status.st_gid, forever=False)
    except PermissionError:
        raise VmsonarError(
            f"{folder} belongs to {user_name(uid)}, and this root may not become another user: run as them"
        ) from None
    # Programs and modules that are needed later must be found then too.
    hidden = [
        path for path in (sys.executable, os.__file__, __file__) if path and not os.access(path, os.R_OK)
    ]
    if hidden:
        os.seteuid(ROOT)
        raise VmsonarError(
            f"{folder} is opened with the rights of its owner, {user_name(uid)}, who may not read {hidden[0]}: "
            f"install vmsonar where everybody can read it, or read a bundle: vmsonar bundle --archive {folder}"
        )
    if forever:
        become(uid, status.st_gid)
    # What root keeps for itself is neither used nor filled by others.
    os.environ.pop("VMSONAR_CACHE", None)
    os.environ["XDG_CACHE_HOME"] = os.devnull


def user_name(uid: int) -> str:
    """The user's name; the number where there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def are_lent() -> bool:
    """Whether we work as somebody else for the time being."""
    return os.getresuid()[2] == ROOT != os.geteuid()


@contextmanager
def published(output: Path) -> Iterator[Path]:
    """Where to write what is meant for a place: that itself or, where lent rights do not reach, a scratch place.

    In the end what lies there is copied with the rights of whoever called us: plain files alone.
    """
    reached = output if os.path.exists(output) else output.absolute().parent
    if not are_lent() or os.access(reached, os.W_OK):
        yield output
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="vmsonar-") as scratch:
        place = Path(scratch) / output.name
        yield place
        if not place.exists():
            return
        above = output.absolute().parent
        with (
            files.held(os.open(scratch, files.FOLDER)) as source,
            callers(),
            files.held(files.open_root(above, for_worker=True)) as target,
        ):
            _copy(source, place.name, target)


@contextmanager
def callers() -> Iterator[None]:
    """For the moment, the rights of whoever called us: for files that they named, never for one of the archive."""
    if not are_lent():
        yield
        return
    uid, gid = os.geteuid(), os.getegid()
    os.seteuid(ROOT)
    os.setegid(ROOT)
    try:
        yield
    finally:
        os.setegid(gid)
        os.seteuid(uid)


def _copy(source: int, name: str, target: int) -> None:
    """Copies a plain file, or a tree of them, under the same name; no link is followed on either side."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
        copy = files.AtomicFile(Path(name), folder=target, mode=0o666, temporary=f".{name}.partial")
        with files.open_beneath(source, name) as file, copy as sink:
            while chunk := file.read(1024 * 1024):
                sink.write(chunk)
        return
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=target)
    with (
        files.held(os.open(name, files.FOLDER, dir_fd=source)) as inside,
        files.held(os.open(name, files.FOLDER, dir_fd=target)) as place,
    ):
        for entry in sorted(os.listdir(inside)):
            _copy(inside, entry, place)
