"""`python -m vmsonar.daemon`: the recorder, in a process that imports nothing it can do without."""

import gc
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Any

# Two threads may be the first to start a child.
_CLAIM = Lock()
_OWN_HASHES = (("_sha1", "_sha256"), ("_sha1", "_sha2"))


class _Later(ModuleType):
    """Stands for a module until it is used. (importlib's LazyLoader loads at the next import statement.)

    Whoever imports one of `functions` from it has one that loads the module when it is called.
    """

    def __init__(self, name: str, *functions: str) -> None:
        super().__init__(name)
        for function in functions:
            setattr(self, function, partial(self._call, function))

    def _call(self, function: str, *arguments: Any, **more: Any) -> Any:
        return _Later.__getattr__(self, function)(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # what `from` asks for first
            raise AttributeError(name)
        with _CLAIM:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def defer_imports() -> None:
    """Defers what libraries import at their top and a recorder never uses."""
    without: dict[str, Any] = {
        # dataclasses imports it for signatures that are never used (1.1 MB of PSS)
        "inspect": _Later("inspect"),
        # pathlib wants the first of these for URLs, our errors the others for secrets (0.4 MB with ipaddress)
        "urllib.parse": _Later("urllib.parse", "quote_from_bytes", "quote", "quote_plus"),
        # the first child brings it; for the encoding of text it would import the other (0.4 MB with selectors)
        "subprocess": _Later("subprocess"),
        "locale": _Later("locale"),
        # msgspec imports both for functions that make JSON Schemas (0.3 MB)
        "msgspec.inspect": _Later("msgspec.inspect"),
        "msgspec._json_schema": _Later("msgspec._json_schema", "schema", "schema_components"),
        # PyYAML imports it for loaders that are not ours
        "yaml._yaml": None,
        # msgspec takes `typing` where this one is not installed (0.4 MB)
        "typing_extensions": None,
    }
    if any(all(find_spec(name) for name in names) for names in _OWN_HASHES):
        # hashlib takes the interpreter's own functions where OpenSSL is not there (4 MB); we hash a megabyte an hour
        without["_hashlib"] = None
    for name, module in without.items():
        sys.modules.setdefault(name, module)
    # For `import urllib.parse`: nobody else puts it there before it is loaded.
    vars(import_module("urllib")).setdefault("parse", sys.modules["urllib.parse"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and runs the daemon; returns the exit code."""
    defer_imports()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--command"]:
        gc.disable()  # until all is loaded: a command waits for us
        from vmsonar.daemon.command_recorder import main as record_command

        return record_command(arguments[1:])
    from vmsonar_archive.system.errors import VmsonarError
    from vmsonar_archive.system.text import printable

    from vmsonar.daemon.loop import run
    from vmsonar.daemon.options import USAGE, parse

    if "--help" in arguments or "-h" in arguments:
        print(USAGE)
        return 0
    try:
        return run(parse(arguments))
    except VmsonarError as error:
        said, code = str(error), int(error.exit_code)
    except OSError as error:
        said, code = f"{error.filename or 'daemon'}: {error.strerror or error}", 3
    print(f"vmsonar: {printable(said)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
