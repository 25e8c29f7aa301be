"""Commands mapped to program names and tags by an ordered table of regular expressions (RE2 syntax)."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from vmsonar_archive.system.errors import UsageError, missing_extra, reason_of

# RE2 matches in time linear in the text; this bounds what one expression may take.
_MAX_MEMORY = 8 * 2**20
_MAX_PATTERN = 4096
_CACHED = 65536


class Pattern(Protocol):
    """A compiled expression."""

    @property
    def pattern(self) -> str: ...

    def search(self, text: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Program:
    """What a command is called."""

    name: str
    tags: tuple[str, ...] = ()


def compile_pattern(text: str, where: str) -> Pattern:
    """A regular expression that matches in linear time."""
    try:
        import re2
    except ImportError:
        raise missing_extra("inspect", "matching commands") from None
    if len(text) > _MAX_PATTERN:
        raise UsageError(f"{where}: the expression has more than {_MAX_PATTERN} characters")
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise UsageError(f"{where}: not a regular expression of RE2: {reason}") from None
    return pattern


class ProgramMap:
    """The first expression that is found in a command names its program."""

    def __init__(self, rows: Iterable[tuple[Pattern, Program]]) -> None:
        self._rows = list(rows)
        self.of = lru_cache(maxsize=_CACHED)(self._of)

    def _of(self, command: str | None) -> Program:
        if not command:
            return Program("unknown")
        for pattern, program in self._rows:
            if pattern.search(command):
                return program
        return Program(basename(command))


def basename(command: str) -> str:
    """The executable's name, for a command that no expression knows."""
    first = command.split(maxsplit=1)[0] if command.strip() else command
    return first.rstrip("/").rpartition("/")[2].lstrip("-").rstrip(":") or command


_INTERPRETER = re.compile(r"(python[0-9.]*|pypy3?|(ba|da|z|k|fi)?sh|Rscript|julia|node|perl|ruby|php[0-9.]*)")


def script_of(command: str) -> str:
    """The script or module that an interpreter runs: `train.py`; nothing for a file without a name of its own."""
    words = command.split()
    if not words or not _INTERPRETER.fullmatch(basename(words[0])):
        return ""
    if "-m" in words[1:-1]:
        return words[words.index("-m") + 1]
    named = words[1:2] if len(words) == 2 else [word for word in words[1:] if re.search(r"[./]", word)]
    is_named = named and not named[0].startswith(("-", "/dev/", "/proc/"))
    return basename(named[0]) if is_named else ""


#: Libraries that tell what a Python is for, those built on others before these.
_TELLING = (
    *(
        "torch",
        "tensorflow",
        "jaxlib",
        "xgboost",
        "lightgbm",
        "catboost",
        "sklearn",
        "cv2",
        "rdkit",
        "pysam",
        "h2o",
    ),
    *("polars", "duckdb", "pandas", "pyarrow", "numba", "scipy", "numpy"),
)


def label_of(
    programs: ProgramMap, command: str | None, busiest: str | None, libraries: str | None = None
) -> tuple[Program, str]:
    """What a job kept busy, and by what it was started: `Python with numpy in train.py`, `C compiler (make)`."""
    program, label = _label_of(programs, command, busiest)
    loaded = (libraries or "").split(",")
    library = next((name for name in _TELLING if name in loaded), None)
    if library is None or not label.startswith("Python"):
        return program, label
    return program, f"Python with {library}{label.removeprefix('Python')}"


def without_library(label: str) -> str:
    """`Python in train.py`: what fails early has not loaded anything yet."""
    return re.sub(r"^Python with \w+", "Python", label)


def _label_of(programs: ProgramMap, command: str | None, busiest: str | None) -> tuple[Program, str]:
    leader, inner = command or "", busiest or command or ""
    program = programs.of(inner or None)
    script = script_of(inner)
    if script and program.name.lower() not in script.lower():
        return program, f"{program.name} in {script}"
    started_by, itself = basename(leader), basename(inner)
    is_shell = "shell" in programs.of(leader or None).tags
    starter = script_of(leader) or ("" if is_shell or started_by == itself else started_by)
    if not starter and not script and "shell" not in program.tags:
        # A name of many programs says which of them it was: `Database (postgres)`.
        starter = "" if program.name.lower() in itself.lower() else itself
    return program, f"{program.name} ({starter})" if starter and starter != script else program.name


def load_programs(path: Path | None = None) -> ProgramMap:
    """Our map; or a site's, whose rows come first."""
    rows: list[tuple[Pattern, Program]] = []
    if path is not None:
        try:
            rows += _parse(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the program map {path}: {reason_of(error)}") from None
    ours = resources.files("vmsonar_inspect").joinpath("facts/programs.tsv").read_text(encoding="utf-8")
    return ProgramMap(rows + _parse(ours, "programs.tsv"))


def _parse(text: str, where: str) -> list[tuple[Pattern, Program]]:
    rows = []
    reader = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, cells in enumerate(reader, start=1):
        if not cells or not cells[0].strip() or cells[0].startswith("#"):
            continue
        if len(cells) not in (2, 3) or not cells[1].strip():
            raise UsageError(f"{where}:{number}: a row is: expression, TAB, name, and optionally TAB, tags")
        tags = tuple(tag.strip() for tag in cells[2].split(",") if tag.strip()) if len(cells) == 3 else ()
        rows.append((compile_pattern(cells[0], f"{where}:{number}"), Program(cells[1].strip(), tags)))
    return rows
