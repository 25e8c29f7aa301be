"""Finds the script or module that an interpreter runs; anything unclear is not recorded."""

import re
from typing import NamedTuple


class Interpreter(NamedTuple):
    """How one interpreter reads its options, as far as we need to know."""

    #: Letters of short options without a value, which may be run together.
    letters: str
    #: Options whose value is the next argument.
    valued: frozenset[str]
    #: Long options without a value; one with `=value` is always passed over.
    flags: frozenset[str]
    #: Options whose value names what runs.
    named: frozenset[str]
    #: Letters or options whose value is program text: recorded never.
    text: frozenset[str]


def _interpreter(
    letters: str = "", valued: str = "", flags: str = "", named: str = "", text: str = "-c"
) -> Interpreter:
    return Interpreter(letters, *(frozenset(words.split()) for words in (valued, flags, named, text)))


_SHELL = _interpreter(
    letters="abefhiklmnprtuvxBCEHPT",
    valued="-o -O --rcfile --init-file +o +O",
    flags="--login --noprofile --norc --posix --verbose --restricted",
)
_JAVA = _interpreter(
    valued="-cp -classpath --class-path -p --module-path --add-modules",
    flags="-server -client --enable-preview",
    named="-jar -m --module",
    text="",
)
_BY_NAMES = {
    "sh bash dash ash ksh mksh zsh rbash": _SHELL,
    "python pypy": _interpreter("bBdEhiIOPqsSuvVx", valued="-W -X --check-hash-based-pycs", named="-m"),
    "perl": _interpreter("acdfnpsStTuUvwWX", text="-e -E"),
    "ruby": _interpreter("adlnpsSvwW", valued="-I -r -C", text="-e"),
    "node nodejs": _interpreter("i", valued="-r --require --import", text="-e -p"),
    "Rscript": _interpreter(flags="--vanilla --verbose --no-save --slave --no-restore", text="-e"),
    "php": _interpreter("aCeHilnqsvwz", valued="-d -c -z", named="-f", text="-r -B -R -E"),
    "java": _JAVA,
    "lua luajit julia tclsh wish guile fish": _interpreter(),
}
_KNOWN = {name: known for names, known in _BY_NAMES.items() for name in names.split()}
_VERSION = re.compile(r"[0-9.]+t?$", re.ASCII)


def interpreter(program: str) -> Interpreter | None:
    """The interpreter of that name, whatever version stands behind it."""
    return _KNOWN.get(_VERSION.sub("", program.removeprefix("-")))


def script_of(program: str, args: list[str]) -> str | None:
    """The script, or `-m module`, that these arguments name; None when there is none or it is unclear."""
    known = interpreter(program)
    if known is None:
        return None
    rest = iter(args)
    for arg in rest:
        if arg in known.named:
            value = next(rest, None)
            return f"{arg} {value}" if value and not value.startswith("-") else None
        if arg in known.valued:
            next(rest, None)
        elif arg == "--":
            return next(rest, None)
        elif not arg.startswith(("-", "+")) or arg == "-":
            return arg if arg not in ("", "-") and not arg.startswith("@") else None
        elif not _is_flag(known, arg):
            return None
    return None


def _is_flag(known: Interpreter, arg: str) -> bool:
    """Whether an option certainly takes nothing from the arguments after it."""
    if arg in known.flags:
        return True
    if known is _JAVA:
        return arg.startswith(("-D", "-X", "-agent", "-verbose", "-ea", "-da"))
    if arg.startswith("--"):
        return "=" in arg
    return all(letter in known.letters for letter in arg[1:])


def takes_program_text(program: str, arg: str) -> bool:
    """Whether what follows this option is program text, such as after `sh -xc`."""
    known = interpreter(program)
    if known is None or not arg.startswith("-") or arg.startswith("--"):
        return known is not None and arg in ("--eval", "--print", "--command")
    return any(f"-{letter}" in known.text for letter in arg[1:]) and not arg.startswith(
        ("-m", "-W", "-X", "-D")
    )
