"""Who is told: a webhook with a signature, a command, mail. Each thing once, and once when it is over."""

import hashlib
import hmac
import re
import smtplib
import ssl
import subprocess
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from email.message import EmailMessage
from functools import partial
from urllib.parse import SplitResult

import msgspec
from vmsonar_archive.system import web
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.system.text import plain

from vmsonar.config.shipping import Hooks
from vmsonar.forward.settings import read_secret
from vmsonar.host.clock import Backoff

_SECONDS = 20.0
_PATIENCE = 1.0
# A way that failed is tried again after a while, which doubles up to the last one.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class Notice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is told."""

    #: lost, problem, disk_will_fill or idle; the same thing about the same subject is one.
    kind: str
    archive: str
    host: str | None = None
    #: The rule and what it is about, where it is a verdict.
    subject: str = ""
    time: datetime
    over: bool = False
    says: str
    details: list[str] = []

    @property
    def key(self) -> str:
        return f"{self.kind} {self.archive} {self.subject}".rstrip()

    def title(self) -> str:
        over = "over: " if self.over else ""
        return plain(f"{over}{self.host or self.archive}: {self.says}")


class Teller:
    """Brings notices to everybody who is configured."""

    def __init__(self, hooks: Hooks) -> None:
        """Secrets are read now, so that a missing one is said at the start."""
        self._ways: dict[str, Callable[[Notice], None]] = {}
        if hooks.webhook is not None:
            url = web.check_url(hooks.webhook)
            key = (
                read_secret(hooks.webhook_secret_file, "fleet.hooks.webhook_secret_file")
                if hooks.webhook_secret_file
                else None
            )
            self._ways["webhook"] = partial(_post, url, key)
        if hooks.command:
            self._ways["command"] = partial(_run, hooks.command)
        if hooks.mail.to:
            mail = hooks.mail
            _server_of(mail.server)
            if mail.username is not None and (mail.tls == "none" or mail.password_file is None):
                raise UsageError("fleet.hooks.mail.username needs password_file, and tls: starttls or tls")
            secret = (
                read_secret(mail.password_file, "fleet.hooks.mail.password_file")
                if mail.username and mail.password_file
                else None
            )
            self._ways["mail"] = partial(_mail, hooks, secret)

    @property
    def ways(self) -> list[str]:
        return list(self._ways)

    def tell(self, way: str, notice: Notice) -> None:
        """Raises VmsonarError where it did not arrive."""
        try:
            self._ways[way](notice)
        except (OSError, ValueError, smtplib.SMTPException, subprocess.SubprocessError) as error:
            raise VmsonarError(f"the {way} was not told: {type(error).__name__}: {error}") from None


class Messenger:
    """Tells one way, in a thread of its own: one that hangs holds up nothing else."""

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, draw=max)
        self._due: datetime | None = None
        self._told: set[tuple[str, datetime, bool]] = set()
        #: Why something did not arrive; None since all did.
        self.trouble: str | None = None

    def tell(self, notices: Sequence[Notice], now: datetime) -> list[Notice]:
        """Begins to tell these, unless it is still at some or failed a moment ago; returns what has not arrived yet."""
        is_busy = self._thread is not None and self._thread.is_alive()
        left = self._without_told(notices)
        if is_busy:
            return left
        self._told.clear()
        if not left or (self._due is not None and now < self._due):
            return left
        self._thread = threading.Thread(target=self._run, args=(left, now), daemon=True)
        self._thread.start()
        # Most arrive at once, and are noted at this look then.
        self._thread.join(_PATIENCE)
        return self._without_told(left)

    def _without_told(self, notices: Sequence[Notice]) -> list[Notice]:
        return [notice for notice in notices if (notice.key, notice.time, notice.over) not in self._told]

    def _run(self, notices: Sequence[Notice], now: datetime) -> None:
        trouble = None
        for notice in notices:
            try:
                self._tell(notice)
                self._told.add((notice.key, notice.time, notice.over))
            except VmsonarError as error:
                trouble = str(error)
        if trouble is None:
            self._backoff.reset()
        self._due = None if trouble is None else now + timedelta(seconds=self._backoff.next())
        self.trouble = trouble


def signature(key: str, timestamp: str, body: bytes) -> str:
    """`sha256=…` of the time, a dot and the body: whoever checks it refuses old times."""
    digest = hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def _post(url: SplitResult, key: str | None, notice: Notice) -> None:
    body = msgspec.json.encode(notice)
    timestamp = str(int(notice.time.timestamp()))
    headers = {"Content-Type": "application/json", "X-Vmsonar-Timestamp": timestamp}
    if key is not None:
        headers["X-Vmsonar-Signature"] = signature(key, timestamp, body)
    answer = web.ask(url, web.Request("POST", headers, body), _SECONDS)
    if not 200 <= answer.status < 300:
        raise OSError(f"it answers {answer.status} {web.phrase(answer.status)}".rstrip())


def _run(command: list[str], notice: Notice) -> None:
    done = subprocess.run(
        command,
        input=msgspec.json.encode(notice),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"{command[0]} ended with {done.returncode}")


def _server_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port):
        raise UsageError(f"fleet.hooks.mail.server: {text!r} is no host:port, such as mail.example.org:25")
    return host.strip("[]"), int(port)


def _mail(hooks: Hooks, secret: str | None, notice: Notice) -> None:
    settings = hooks.mail
    message = EmailMessage()
    message["From"], message["To"] = settings.sender, ", ".join(settings.to)
    message["Subject"] = f"vmsonar: {notice.title()}"[:200]
    lines = [
        notice.title(),
        "",
        *map(plain, notice.details),
        "",
        f"archive {notice.archive}, {notice.time:%F %T} UTC",
    ]
    message.set_content("\n".join(lines))
    host, port = _server_of(settings.server)
    if settings.tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, port, timeout=_SECONDS, context=ssl.create_default_context()
        )
    else:
        server = smtplib.SMTP(host, port, timeout=_SECONDS)
    with server:
        if settings.tls == "starttls":
            server.starttls(context=ssl.create_default_context())
        if secret is not None and settings.username is not None:
            server.login(settings.username, secret)
        server.send_message(message)
