"""A disk that fails on demand: compiles and drives the preloaded library of shim.c.

A process that is started with `Faults.environment()` runs with these variables:

    LD_PRELOAD    the library
    FAULTS_UNDER  the folder (absolute, without links) whose files are touched; all others are left alone
    FAULTS_FILE   the control file, which lies elsewhere; it is read again as soon as it was replaced
    FAULTS_LOG    gets a line `PID OPERATION ACTION PATH` for every fault that happened
    FAULTS_SEED   begins the row of random numbers for `chance=`

A control file holds one rule a line; for each call the first that fits is used:

    OPERATION ACTION COUNT [after=N] [chance=P] [path=TEXT]

    OPERATION  write (also pwrite, writev), ftruncate, fsync (also of folders), fdatasync, rename (by the new name),
               open (for writing), unlink, mkdir
    ACTION     an error (EIO, ENOSPC, EDQUOT, EROFS, EINTR, EACCES, EPERM, EMFILE, ENOENT, ESTALE);
               STALL=SECONDS, after which the call goes on, at the latest when the rules are replaced;
               SHORT=BYTES, so that no more than that is written, and told as written;
               KILL, so that the process is killed before the call
    COUNT      how many calls it is for, or * for all; every process counts for itself
    after=N    lets the first N that fit pass
    chance=P   takes each that fits with this probability
    path=TEXT  only files whose path contains it

A line `clear` drops the rules above it, as does an empty file. Rules follow each other: `write SHORT=5 1` and then
`write EIO *` is a write that stops half-way. A rule that is not understood ends the process with 97.
"""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.parts import need

SOURCE = Path(__file__).with_name("shim.c")


@functools.cache
def library() -> Path:
    """The compiled library, made once per test process."""
    need("gcc")
    folder = tempfile.mkdtemp(prefix="vmsonar-faults-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "faults.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", str(path), str(SOURCE), "-ldl"], check=True, timeout=120)
    return path


class Faults:
    """The faults of one folder; processes that run with its environment obey from their next call on."""

    def __init__(self, under: Path, control: Path, seed: int = 1) -> None:
        """The control file, and a log beside it, must not lie below the folder."""
        self._under = under.resolve()
        self._control = control.resolve()
        self._log = self._control.with_name(self._control.name + ".log")
        self._seed = seed
        self._control.parent.mkdir(parents=True, exist_ok=True)
        self.clear()

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a process is to be started with."""
        return {
            **(os.environ if base is None else base),
            "LD_PRELOAD": str(library()),
            "FAULTS_UNDER": str(self._under),
            "FAULTS_FILE": str(self._control),
            "FAULTS_LOG": str(self._log),
            "FAULTS_SEED": str(self._seed),
        }

    def set(self, *rules: str) -> None:
        """Puts these rules in the place of those before; every count begins anew."""
        fresh = self._control.with_name(self._control.name + ".new")
        fresh.write_text("".join(f"{rule}\n" for rule in rules))
        fresh.rename(self._control)

    def clear(self) -> None:
        """Lets everything through again; stalled calls go on."""
        self.set()

    def happened(self) -> Counter[tuple[str, str]]:
        """How often which operation met which action so far."""
        if not self._log.exists():
            return Counter()
        lines = self._log.read_text().splitlines()
        return Counter((line.split(" ")[1], line.split(" ")[2]) for line in lines)
