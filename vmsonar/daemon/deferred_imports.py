"""Defers imports that libraries make at their top and that the daemon never uses."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# dataclasses imports it for signatures that are never used (1.1 MB of PSS).
_PUT_OFF = ("inspect",)
# msgspec takes `typing` where this one is not installed (0.4 MB).
_LEFT_OUT = ("typing_extensions",)
# hashlib takes the interpreter's own functions where OpenSSL is not there (4 MB); we hash a megabyte an hour.
_OPENSSL = "_hashlib"
_OWN_HASHES = (("_sha1", "_sha256"), ("_sha1", "_sha2"))


class _Later(ModuleType):
    """Stands for a module until it is used. (importlib's LazyLoader loads at the next import statement.)"""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def put_off() -> None:
    """Call it first, and only in a process of our own."""
    for name in _LEFT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    if any(all(find_spec(name) for name in names) for names in _OWN_HASHES):
        sys.modules.setdefault(_OPENSSL, None)  # type: ignore[arg-type]
    for name in _PUT_OFF:
        sys.modules.setdefault(name, _Later(name))
