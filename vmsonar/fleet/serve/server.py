"""Runs the server: a port or a socket, TLS, the preparer of answers beside it, and a stop that lets answers end."""

import os
import signal
import ssl
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError, missing_extra

from vmsonar.config.shipping import FleetSection
from vmsonar.daemon.notify import Notifier
from vmsonar.daemon.signals import leave
from vmsonar.fleet.intake import intake_by
from vmsonar.fleet.serve.access import Access, Authenticator, read_access
from vmsonar.fleet.serve.prepared import Prepared
from vmsonar.fleet.serve.preparer import Preparer
from vmsonar.fleet.store import Fleet
from vmsonar.host.listening import Address

#: Seconds that answers under way have at a stop.
_GRACE = 10


def need_server() -> None:
    """Raises unless what serves is installed; names the extra that brings it."""
    for name in ("starlette", "uvicorn", "httptools", "duckdb", "pyarrow"):
        if find_spec(name) is None:
            raise missing_extra("serve", "vmsonar serve")


@dataclass(frozen=True)
class Wishes:
    """How to serve."""

    address: Address
    access: Access
    #: Where that came from.
    access_file: Path | None
    fleet: FleetSection
    certificate: Path | None = None
    key: Path | None = None
    open_to_all: bool = False
    uploads: bool = True
    url: str | None = None
    shipping: timedelta | None = None
    largest: int = 2 * 2**30
    state: Path | None = None


def serve(fleet: Fleet, wishes: Wishes, tell: Callable[[str], None]) -> None:
    """Until a signal; uvicorn takes SIGTERM and SIGINT, lets answers end, and returns. SIGHUP has tokens and the
    certificate read again.
    """
    need_server()
    import uvicorn

    from vmsonar.fleet.serve.app import Server
    from vmsonar.fleet.serve.connection import Connection
    from vmsonar.fleet.serve.uploads import Uploads

    address = wishes.address
    _check(wishes)
    state = wishes.state or fleet.state / "serve"
    prepared = Prepared(state / "answers.db")
    prepared.create()
    preparer = Preparer(fleet, prepared, tell)
    # Addresses are minted and used at any replica: they share the key.
    shared = fleet.state / "serve"
    intake = intake_by(fleet, wishes.fleet)
    uploads = Uploads(intake, shared, url=wishes.url, largest=wishes.largest) if wishes.uploads else None
    door = Authenticator(wishes.access, open_to_all=wishes.open_to_all, behind_proxy=address.path is not None)
    application = Server(prepared, door, preparer, uploads, tell, wishes.shipping).application()
    config = uvicorn.Config(
        application, ssl_certfile=wishes.certificate, ssl_keyfile=wishes.key, log_level="warning", access_log=False,
        proxy_headers=False, server_header=False, timeout_graceful_shutdown=_GRACE, timeout_keep_alive=30,
        limit_concurrency=512, http=Connection, ws="none", lifespan="off",
    )  # fmt: skip
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise VmsonarError(f"cannot use {wishes.certificate} and {wishes.key}: {error}") from None
    listening = address.bound()
    thread = threading.Thread(target=preparer.run, name="preparer", daemon=True)
    thread.start()
    notifier = Notifier()
    notifier.ready()
    tell(f"serving {fleet.root} at {_shown(wishes, listening.getsockname())}")
    server = uvicorn.Server(config)
    # Its own way would end the process by the signal after all was done in order.
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    signal.signal(signal.SIGHUP, lambda *_: _renew(wishes, door, config.ssl, tell))
    try:
        server.run(sockets=[listening])
    finally:
        notifier.stopping()
        preparer.stop()
        thread.join(timeout=_GRACE)
        address.remove()
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        # A bundle is still looked at; it was not acknowledged, and is sent again.
        leave(Exit.OK)


def _renew(
    wishes: Wishes, door: Authenticator, tls: ssl.SSLContext | None, tell: Callable[[str], None]
) -> None:
    """Takes over the file of tokens and the certificate as they are now, or keeps both."""
    try:
        access = wishes.access if wishes.access_file is None else read_access(wishes.access_file)
        _check(replace(wishes, access=access))
        if tls is not None and wishes.certificate is not None:
            tls.load_cert_chain(wishes.certificate, wishes.key)
    except (OSError, VmsonarError) as error:
        tell(f"still with the tokens and the certificate of before: {error}")
        return
    door.let_in(access)
    tell("read the tokens and the certificate again")


def _shown(wishes: Wishes, bound: Any) -> str:
    """For people; a port that was left to the system is known only now."""
    if wishes.address.path is not None:
        return str(wishes.address.path)
    host = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    return f"{'https' if wishes.certificate else 'http'}://{host}:{bound[1]}/"


def _check(wishes: Wishes) -> None:
    address = wishes.address
    if (wishes.certificate is None) != (wishes.key is None):
        raise UsageError("--tls-cert and --tls-key go together: give both")
    if wishes.open_to_all and (not address.is_local or address.path is not None):
        raise UsageError(
            "--open lets everybody in: it goes with a loopback address only, such as 127.0.0.1:8060"
        )
    if (
        not wishes.open_to_all
        and not wishes.access.tokens
        and (address.path is None or wishes.access.proxy is None)
    ):
        raise UsageError("nobody could ask anything: give --access FILE with tokens, or --open on loopback")
    if not address.is_local and wishes.certificate is None:
        raise UsageError(f"{address.host} can be reached from elsewhere: give --tls-cert and --tls-key")
    for path in (wishes.certificate, wishes.key):
        if path is not None and not os.access(path, os.R_OK):
            raise VmsonarError(f"cannot read {path}: give it to the user that this runs as")
