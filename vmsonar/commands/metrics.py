"""`vmsonar metrics`: the present state for Prometheus, as text, as a textfile, or over HTTP."""

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError, VmsonarError
from vmsonar_archive.system.files import AtomicFile
from vmsonar_archive.system.rights import callers, work_as_owner
from vmsonar_archive.write.outputs import refuse_archive

from vmsonar.commands.options import ArchiveOption, ConfigOption, option
from vmsonar.commands.output import writing_to
from vmsonar.config.file import load_config
from vmsonar.config.shipping import Metrics
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Notifier
from vmsonar.daemon.signals import Signals, leave_soon
from vmsonar.forward.exporter import Door, Exporter, server_context
from vmsonar.forward.present import Present
from vmsonar.forward.settings import read_secret, secret_path
from vmsonar.host.listening import Address
from vmsonar.host.roots import archive_to_read

_LOOK_NS = 1_000_000_000
_TEXTFILE = "vmsonar.prom"


def metrics_command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    listen: Annotated[
        str | None,
        option("ADDR:PORT|unix:PATH", "Answer scrapes there until stopped, such as 127.0.0.1:9798."),
    ] = None,
    textfile: Annotated[
        Path | None, option("DIR", "Keep vmsonar.prom there until stopped, for node_exporter.")
    ] = None,
    dashboards: Annotated[
        Path | None, option("DIR", "Only write Grafana's dashboards there, as JSON to import.")
    ] = None,
) -> int:
    """Shows what the newest sample says in the words of Prometheus: once, or as long as it runs.

    Without an option it prints OpenMetrics text. The recorder itself opens no port: this is another process.

    Example: vmsonar metrics --listen 127.0.0.1:9798
    """
    if dashboards is not None:
        return _write_dashboards(dashboards)
    settings = load_config(config)
    address = Address.parse(listen) if listen is not None else None
    if address is not None and textfile is not None:
        raise UsageError("--listen and --textfile exclude each other: start one process for each")
    if textfile is not None:
        refuse_archive(textfile)
        if not textfile.is_dir():
            raise UsageError(f"--textfile {textfile} is not a folder: give the one that node_exporter reads")
        _claim(textfile)
    door = _door(settings.metrics) if address is not None else Door()
    root = archive_to_read(archive, settings.archive)
    if root.is_file():
        raise UsageError(
            f"{root} is not the folder of an archive: vmsonar export --to openmetrics takes bundles"
        )
    listener = address.bound() if address is not None else None
    work_as_owner([root], output=True)
    with closing(Present(root, settings.metrics.places)) as present:
        keeper = _Keeper(present, Log(settings.log))
        if textfile is not None:
            return keeper.keep_textfile(textfile)
        if address is None or listener is None:
            return _print(present, root)
        if not address.is_local and door.context is None:
            keeper.log.warning(
                f"everybody who reaches {address.text} can read this: set metrics.tls and metrics.username"
                if door.credentials is None
                else f"the password goes to {address.text} in the clear: set metrics.tls"
            )
        server = Exporter(listener, lambda is_open: present.text(is_open=is_open), door)

        def renew() -> None:
            with callers():
                server.door = _door(load_config(config).metrics)

        try:
            return keeper.serve(server, address, renew)
        finally:
            with callers():
                address.remove()


def _write_dashboards(folder: Path) -> int:
    from vmsonar_archive.dialect.grafana import dashboards

    refuse_archive(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, dashboard in dashboards().items():
        with writing_to(folder / name), AtomicFile(folder / name, mode=0o644) as file:
            file.write(msgspec.json.format(msgspec.json.encode(dashboard)) + b"\n")
        print(folder / name)
    return Exit.OK


def _claim(folder: Path) -> None:
    """Holds the folder as long as we live: of two, the one that ends would take the other's file away."""
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        said = (
            "another process keeps"
            if isinstance(error, BlockingIOError)
            else f"{error.strerror}: cannot keep"
        )
        raise VmsonarError(f"--textfile {folder}: {said} {_TEXTFILE} there") from None


def _print(present: Present, root: Path) -> int:
    present.look()
    text = present.text(is_open=True)
    if not text:
        raise AnswerIsNo(f"no sample in {root}: is the recorder running? (vmsonar status)")
    sys.stdout.buffer.write(text)
    if not present.is_fresh:
        raise AnswerIsNo(f"the newest sample in {root} is old: is the recorder running? (vmsonar status)")
    return Exit.OK


def _door(metrics: Metrics) -> Door:
    """Who is let in; the files are read with the caller's rights."""
    context = credentials = None
    tls = metrics.tls
    if tls.certificate_file is not None:
        key = None if tls.key_file is None else str(secret_path(tls.key_file, "metrics.tls.key_file"))
        context = server_context(tls.certificate_file, key, tls.client_ca_file)
    elif tls.key_file is not None or tls.client_ca_file is not None:
        raise UsageError("metrics.tls has no certificate_file: without one nothing is protected")
    if metrics.username is not None:
        if metrics.password_file is None:
            raise UsageError("metrics.username needs password_file")
        credentials = f"{metrics.username}:{read_secret(metrics.password_file, 'metrics.password_file')}"
    elif metrics.password_file is not None:
        raise UsageError("metrics.password_file needs username")
    return Door(context, credentials)


class _Keeper:
    """Looks at the archive every second until a signal ends it."""

    def __init__(self, present: Present, log: Log) -> None:
        self.log = log
        self._present = present
        self._trouble: str | None = None
        self._signals = Signals(hurry=partial(leave_soon, signal.SIGINT))
        self._notifier = Notifier()

    def serve(self, server: Exporter, address: Address, renew: Callable[[], None]) -> int:
        """Answers scrapes; at SIGHUP with the certificate and the password that there are now."""
        with server:
            self._tried(self._present.look)
            threading.Thread(target=server.serve_forever, name="vmsonar-scrapes", daemon=True).start()
            self.log.info(f"answering on {address.text}")
            self._keep(self._present.look, renew)
            server.shutdown()
        return self._code

    def keep_textfile(self, folder: Path) -> int:
        """Writes the file whenever there is something new, and takes it away in the end: its series end."""
        path = folder / _TEXTFILE
        is_due = False
        self.log.info(f"keeping {path}")

        def bring_up_to_date() -> None:
            nonlocal is_due
            is_due |= self._present.look()
            if is_due and (text := self._present.text(is_open=False)):
                self._write(path, text)
                is_due = False

        try:
            self._keep(bring_up_to_date)
        finally:
            _take_away(path)
        return self._code

    @property
    def _code(self) -> int:
        return 128 + signal.SIGINT if self._signals.interrupted else Exit.OK

    def _write(self, path: Path, text: bytes) -> None:
        try:
            with callers(), writing_to(path), AtomicFile(path, mode=0o644, durable=False) as file:
                file.write(text)
        except VmsonarError:
            # What it says is no longer true.
            _take_away(path)
            raise

    def _keep(self, look: Callable[[], object], reload: Callable[[], None] = lambda: None) -> None:
        self._signals.install()
        self._notifier.ready()
        try:
            while not self._signals.stop:
                self._tried(look)
                self._signals.wait(_LOOK_NS)
                if self._signals.reload:
                    self._signals.reload = False
                    try:
                        reload()
                    except VmsonarError as error:
                        self.log.warning(f"{error}; what was read before stays in use")
        finally:
            self._notifier.stopping()
            self._signals.uninstall()

    def _tried(self, act: Callable[[], object]) -> None:
        """Trouble is told once: the archive may not be there yet, or be under repair; a disk may be full."""
        try:
            act()
        except (VmsonarError, OSError) as error:
            if str(error) != self._trouble:
                self.log.warning(f"{error}; trying again every second")
            self._trouble = str(error)
        else:
            self._trouble = None


def _take_away(path: Path) -> None:
    with callers():
        path.unlink(missing_ok=True)
