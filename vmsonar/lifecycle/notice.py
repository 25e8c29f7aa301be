"""Watches the clouds' metadata for the notice that this VM is about to be taken away, and tears down in time."""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from vmsonar_archive.system import web
from vmsonar_archive.system.children import python
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.system.text import printable
from vmsonar_archive.system.web import Request, reason_of

from vmsonar.config.file import load_config
from vmsonar.daemon.log import Log
from vmsonar.daemon.signals import Signals
from vmsonar.host.cloud import NOTICE_FILE, NoticeNote

#: The same for all three clouds; never a name, which DNS could redirect.
ADDRESS = ("169.254.169.254", 80)
_SECONDS = 2.0
_POLL_SECONDS = 5.0
# What the shortest notice, 30 s, leaves once it has been seen; the most a teardown gets; what is kept back.
_SHORT, _LONGEST, _MARGIN = 22.0, 110.0, 4.0
_LIFETIME = "21600"
# Longer words than any cloud uses are cut in logs and records.
_LONGEST_WORD = 80


@dataclass(frozen=True, slots=True)
class Notice:
    """This VM is about to be taken away."""

    #: Distinguishes one notice from the next.
    key: str
    detail: str
    #: When, where the cloud says so.
    at: datetime | None = None


class Metadata:
    """One metadata service, asked without proxies and redirects."""

    def __init__(self, address: tuple[str, int] = ADDRESS, seconds: float = _SECONDS) -> None:
        self._address = address
        self._seconds = seconds
        self._token: str | None = None

    def get(self, path: str, headers: Mapping[str, str], method: str = "GET") -> tuple[int, bytes]:
        """Status and body; raises OSError where nobody answers in time."""
        host, port = self._address
        url = urlsplit(f"http://{host}:{port}{path}")
        answer = web.ask(url, Request(method, headers), self._seconds, proxies=False)
        return answer.status, answer.body

    def token(self, renew: bool = False) -> str:
        """The session token that AWS wants with every question."""
        if self._token is None or renew:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": _LIFETIME}
            status, body = self.get("/latest/api/token", headers, "PUT")
            if status != 200:
                raise OSError(f"no session token: the service answers {status}")
            said = body.strip()
            if not re.fullmatch(rb"[\x21-\x7e]{1,1024}", said):
                raise OSError("the service answers with something else than a session token")
            self._token = said.decode("ascii")
        return self._token


def ask_aws(service: Metadata) -> Notice | None:
    path = "/latest/meta-data/spot/instance-action"
    status, body = service.get(path, {"X-aws-ec2-metadata-token": service.token()})
    if status == 401:
        status, body = service.get(path, {"X-aws-ec2-metadata-token": service.token(renew=True)})
    if status == 404:
        return None
    said = _object(status, body)
    if not isinstance(said.get("action"), str):
        raise OSError("the service answers without an action")
    action, at = _word(said["action"]), _word(said.get("time"))
    return Notice(f"{action} {at}", f"aws: {action} at {at}", _moment(at, datetime.fromisoformat))


def ask_gcp(service: Metadata) -> Notice | None:
    headers = {"Metadata-Flavor": "Google", "Host": "metadata.google.internal"}
    status, body = service.get("/computeMetadata/v1/instance/preempted", headers)
    if status != 200:
        raise OSError(f"the service answers {status}")
    return Notice("preempted", "gcp: preempted") if body.strip() == b"TRUE" else None


def ask_azure(service: Metadata) -> Notice | None:
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    said = _object(*service.get(path, {"Metadata": "true"}))
    events = said.get("Events")
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and event.get("EventType") in ("Preempt", "Terminate"):
            at, kind = _word(event.get("NotBefore") or ""), event["EventType"]
            key = _word(event.get("EventId"))
            return Notice(key, f"azure: {kind} {at}".strip(), _moment(at, parsedate_to_datetime))
    return None


#: Who is asked, by the value of `save.notice`.
CLOUDS: dict[str, Callable[[Metadata], Notice | None]] = {"aws": ask_aws, "gcp": ask_gcp, "azure": ask_azure}


def _object(status: int, body: bytes) -> dict[str, Any]:
    if status != 200:
        raise OSError(f"the service answers {status}")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise OSError("the service answers with something else than JSON") from None
    if not isinstance(said, dict):
        raise OSError("the service answers with something else than an object")
    return said


def _moment(text: str, read: Callable[[str], datetime]) -> datetime | None:
    try:
        moment = read(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _word(value: object) -> str:
    """A service's word, cut and made printable for logs and records."""
    return printable(value if isinstance(value, str) else repr(value)[: _LONGEST_WORD + 1], _LONGEST_WORD)


#: Tears down within so many seconds; returns the exit code.
TearDown = Callable[[float], int]


@dataclass
class Watcher:
    """Polls one cloud's metadata; retries each notice until a teardown has succeeded."""

    cloud: str
    tear_down: TearDown
    log: Log
    #: Where the recorder looks for a notice.
    run: Path
    service: Metadata
    _done: set[str] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)
    _trouble: str = ""

    def look(self) -> Notice | None:
        """Asks once and acts on a new notice."""
        try:
            notice = CLOUDS[self.cloud](self.service)
        except OSError as error:
            self._tell(f"cannot ask the metadata service: {reason_of(error)}")
            return None
        self._tell("")
        if notice is not None and notice.key not in self._done:
            self._act(notice)
        return notice

    def _act(self, notice: Notice) -> None:
        if notice.key not in self._noted:
            self._noted.add(notice.key)
            self.log.warning(f"this VM is about to be taken away ({notice.detail}): tearing down")
            # The recorder writes it into its next sample.
            note = NoticeNote(time=datetime.now(UTC), detail=notice.detail)
            with suppress(OSError):
                (self.run / NOTICE_FILE).write_bytes(msgspec.json.encode(note) + b"\n")
        code = self.tear_down(seconds_left(notice, datetime.now(UTC)))
        if code == Exit.OK:
            self._done.add(notice.key)
            self.log.info("everything is safe")
        else:
            self.log.error(f"tearing down ended with exit code {code}: trying again")

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self.log.warning(f"{trouble}; trying again every {_POLL_SECONDS:g} s")
        self._trouble = trouble


def seconds_left(notice: Notice, now: datetime) -> float:
    """The time limit for the teardown."""
    if notice.at is None:
        return _SHORT
    return min(_LONGEST, max(_SHORT / 2, (notice.at - now).total_seconds() - _MARGIN))


def tear_down_with(config: Path | None) -> TearDown:
    """Runs `vmsonar teardown` as a child, with a time limit for both."""

    def tear_down(seconds: float) -> int:
        command = python("-m", "vmsonar", "teardown", "--limit", f"{seconds:.0f}s")
        if config is not None:
            command += ["--config", str(config)]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, check=False, timeout=seconds + 5
            ).returncode
        except (subprocess.TimeoutExpired, OSError):  # no memory for a process may be over the next time
            return Exit.CANNOT

    return tear_down


def watch(config: Path | None, signals: Signals) -> None:
    """Runs until told to stop."""
    settings = load_config(config)
    if settings.save.notice == "none":
        print("vmsonar notice: save.notice is none: there is nothing to watch", file=sys.stderr)
        return
    tear_down, log = tear_down_with(config), Log(settings.log)
    watcher = Watcher(settings.save.notice, tear_down, log, Path("/run"), Metadata())
    while not signals.stop:
        watcher.look()
        signals.wait(int(_POLL_SECONDS * 1e9))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="vmsonar.lifecycle.notice", description=__doc__)
    parser.add_argument("--config", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    signals = Signals()
    signals.install()
    try:
        watch(options.config, signals)
    except VmsonarError as error:
        print(f"vmsonar notice: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
