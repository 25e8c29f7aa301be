"""Who asks: tokens whose hashes lie in a file, or a name that a trusted proxy gives; and what each role may see.

The file is one of ours in YAML, such as docs/serve.md shows. A token is 256 random bits, so that its plain SHA-256 is
all that need be kept of it.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from vmsonar_archive.system.errors import UsageError

from vmsonar.config.file import read_as
from vmsonar.fleet.serve.prepared import EVERYTHING, Scope

if TYPE_CHECKING:
    from starlette.datastructures import Headers

Role = Literal["admin", "project", "user", "upload"]
_NAME = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_HASH = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Rights(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What somebody may do."""

    #: admin: all; project: its machines; user: their own jobs and containers; upload: sends bundles, sees nothing.
    role: Role
    #: Of the role user: the name on the machines.
    user: _NAME | None = None
    #: Host names or archive ids, with * and ?; of project they are needed.
    machines: list[_NAME] = msgspec.field(default_factory=lambda: ["*"])
    #: Of the role upload: the only machine id that it may speak for.
    machine: _NAME | None = None


class Token(Rights, kw_only=True, forbid_unknown_fields=True):
    """A secret that somebody holds."""

    #: Who holds it, for the log.
    name: _NAME
    sha256: _HASH


class Proxy(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A proxy before us that says who asks; believed on a Unix socket only."""

    header: _NAME = "X-Remote-User"
    #: By name; whoever is not listed is a user of that name.
    people: dict[str, Rights] = {}


class Access(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    tokens: list[Token] = []
    proxy: Proxy | None = None


@dataclass(frozen=True)
class Asker:
    """Somebody whom we know."""

    name: str
    role: Role
    scope: Scope | None
    machine: str | None = None


NOBODY_ELSE = Asker("loopback", "admin", EVERYTHING)


class Denied(Exception):
    """Not told who asks, or not believed."""


def read_access(path: Path) -> Access:
    """The file of tokens; refuses what would let in whom nobody meant."""
    access = read_as(Access, path)
    for place, rights in [
        *((f"tokens[{number}]", token) for number, token in enumerate(access.tokens)),
        *(
            (f"proxy.people.{name}", rights)
            for name, rights in (access.proxy.people if access.proxy else {}).items()
        ),
    ]:
        if rights.role == "user" and rights.user is None:
            raise UsageError(f"{path}: {place}: the role user needs `user`, the name on the machines")
        if rights.role == "project" and rights.machines == ["*"]:
            raise UsageError(
                f"{path}: {place}: the role project needs `machines`: all of them is the role admin"
            )
    if path.stat().st_mode & 0o022:
        raise UsageError(f"{path}: others may write it: chmod go-w")
    return access


def new_token() -> tuple[str, str]:
    """A token, and what is kept of it."""
    token = f"vms_{secrets.token_urlsafe(32)}"
    return token, hashlib.sha256(token.encode()).hexdigest()


class Authenticator:
    """Decides who asks."""

    def __init__(self, access: Access, *, open_to_all: bool = False, behind_proxy: bool = False) -> None:
        self._open = open_to_all
        self._behind_proxy = behind_proxy
        self.let_in(access)

    def let_in(self, access: Access) -> None:
        """From now on whom this file names, and nobody else."""
        self._access = access
        self._proxy = access.proxy if self._behind_proxy else None

    def asker(self, headers: "Headers") -> Asker:
        """Who sends a request with these headers; raises `Denied`."""
        if self._open:
            # A page from elsewhere may have its own name lead to us (DNS rebinding).
            if not _is_local(headers.get("host", "")):
                raise Denied("the Host header names another machine")
            return NOBODY_ELSE
        given = headers.get("authorization")
        # Where the proxy itself asked for a password, it may pass that on: it is none of ours.
        if self._proxy is not None and (given is None or headers.get(self._proxy.header)):
            return self._from_proxy(self._proxy, headers)
        if given is None:
            raise Denied("no token")
        return self._from_token(_secret_in(given))

    def _from_token(self, secret: bytes) -> Asker:
        digest = hashlib.sha256(secret).hexdigest()
        found = None
        # All are compared, so that the time says nothing of which was near.
        for token in self._access.tokens:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        if found is None:
            raise Denied("no such token")
        return _asker(found.name, found)

    def _from_proxy(self, proxy: Proxy, headers: "Headers") -> Asker:
        names = headers.getlist(proxy.header)
        if len(names) > 1:
            raise Denied("the proxy names two: it must remove what comes from outside")
        name = next(iter(names), "")
        if not name or len(name) > 200 or not name.isprintable():
            raise Denied("the proxy names nobody")
        return _asker(name, proxy.people.get(name) or Rights(role="user", user=name))


def _asker(name: str, rights: Rights) -> Asker:
    scopes = {
        "admin": EVERYTHING,
        "project": Scope(None, tuple(rights.machines)),
        "user": Scope(rights.user, tuple(rights.machines)),
    }
    return Asker(name, rights.role, scopes.get(rights.role), rights.machine)


def _secret_in(given: str) -> bytes:
    """The token of an Authorization header: a bearer's, or the password that a browser asks for."""
    kind, _, text = given.partition(" ")
    if kind.lower() == "bearer":
        return text.strip().encode("utf-8", "replace")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(text.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            raise Denied("credentials that are none") from None
    raise Denied("neither a bearer token nor a password")


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in ("localhost", "127.0.0.1", "[::1]")
