"""Puts the parts of a forwarder together from the configuration."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from vmsonar_archive.dialect.known import Known
from vmsonar_archive.dialect.sonar import Sonar
from vmsonar_archive.errors import UsageError
from vmsonar_archive.identity import ArchiveIdentity
from vmsonar_archive.layout import NAMESPACE_FILE

from vmsonar.config_forward import Forward
from vmsonar.forward import settings
from vmsonar.forward.cursor import Cursor
from vmsonar.forward.kafka_errors import Login
from vmsonar.forward.pump import Target
from vmsonar.forward.secrets import read_secret
from vmsonar.forward.sender import Sender
from vmsonar.forward.translate import NativeTranslator, Selection, SonarTranslator, Translator
from vmsonar.urls import without_query

if TYPE_CHECKING:
    from vmsonar_archive.bundle.redact import Redactor


class Plan:
    """What the configuration asks for; makes new senders and translators as often as they are needed."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.cluster = settings.check(forward)
        self.target = Target(settings.topics(forward, self.cluster), int(forward.max_message))
        self.selection = Selection(forward.select)
        self._redactor: Redactor | None = None

    @property
    def destination(self) -> str:
        """Where to, in words, without secrets."""
        forward = self.forward
        if forward.to == "kafka":
            return f"kafka {','.join(forward.brokers)}"
        return f"{forward.to} {without_query(forward.url or '')}"

    def attend(self, root: Path) -> None:
        """Takes what it needs from the archive that is going to be sent."""
        self._redactor = make_redactor(self.forward, root)

    def node(self, identity: ArchiveIdentity) -> str:
        """The node's name as the archive knows it, or its pseudonym."""
        shown = identity if self._redactor is None else self._redactor.identity(identity)
        names = (shown.hostname_full, shown.hostname_short)
        ordered = names if self.forward.host_name == "full" else names[::-1]
        return next((name for name in ordered if name), shown.machine_id)

    def sender(self, identity: ArchiveIdentity) -> Sender:
        node = self.node(identity)
        return self._kafka(node) if self.forward.to == "kafka" else self._http(node)

    def translator(self, identity: ArchiveIdentity, cursor: Cursor) -> Translator:
        known = Known(cursor.boots)
        node = self.node(identity)
        if self.forward.dialect == "native":
            return NativeTranslator(node, self.forward.host_name, self.selection, self._redactor, known)
        sonar = Sonar(self.cluster, node, self.forward.host_name, known)
        return SonarTranslator(sonar, self.selection, self._redactor)

    def _kafka(self, node: str) -> Sender:
        from vmsonar.forward.kafka import KafkaSender

        forward = self.forward
        user = None if forward.auth == "none" else forward.username or self.cluster
        login = Login(",".join(forward.brokers), user, forward.tls.ca_file)
        return KafkaSender(settings.producer_settings(forward, self.cluster, node), login)

    def _http(self, node: str) -> Sender:
        from vmsonar.forward.http import Endpoint, Form, HttpSender, JsonForm, ProxyForm

        forward = self.forward
        endpoint = Endpoint(
            forward.url or "",
            self._authorization(),
            settings.tls_context(forward),
            int(forward.max_payload),
            float(forward.timeout),
        )
        form: Form = JsonForm()
        if forward.to == "kafka_proxy":
            client = f"{self.cluster}/{node}"
            form = ProxyForm(client, forward.username or self.cluster, settings.password(forward))
        return HttpSender(endpoint, form)

    def _authorization(self) -> str | None:
        forward = self.forward
        if forward.auth == "basic":
            pair = f"{forward.username or self.cluster}:{settings.password(forward)}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        if forward.auth == "bearer":
            if forward.token_file is None:
                raise UsageError("forward.auth: bearer needs token_file")
            return f"Bearer {read_secret(forward.token_file, 'forward.token_file')}"
        return None


def make_redactor(forward: Forward, root: Path) -> "Redactor | None":
    """What hides names, where that is asked for; its key is the archive's own unless one is given."""
    if not forward.redact:
        return None
    from vmsonar_archive.bundle.redact import Redactor, key_from_namespace, parse_kinds

    if forward.redact_key_file is not None:
        key = read_secret(forward.redact_key_file, "forward.redact_key_file").encode()
    else:
        path = root / NAMESPACE_FILE
        try:
            key = key_from_namespace(path.read_bytes())
        except OSError as error:
            said = f"cannot read {path}: {error.strerror}; give redact_key_file"
            raise UsageError(f"forward.redact: {said}") from None
    return Redactor(key, parse_kinds(",".join(forward.redact)))
