"""Puts the parts of a forwarder together from the configuration."""

import base64

from vmsonar_archive.dialect.known import Known
from vmsonar_archive.dialect.sonar import Sonar
from vmsonar_archive.errors import UsageError
from vmsonar_archive.identity import ArchiveIdentity

from vmsonar.config_forward import Forward
from vmsonar.forward import settings
from vmsonar.forward.cursor import Cursor
from vmsonar.forward.kafka_errors import Login
from vmsonar.forward.pump import Target
from vmsonar.forward.secrets import read_secret
from vmsonar.forward.sender import Sender
from vmsonar.forward.translate import NativeTranslator, Redaction, Selection, SonarTranslator, Translator


class Plan:
    """What the configuration asks for; makes new senders and translators as often as they are needed."""

    def __init__(self, forward: Forward, redaction: Redaction | None = None) -> None:
        self.forward = forward
        self.cluster = settings.check(forward)
        self.target = Target(settings.topics(forward, self.cluster), int(forward.max_message))
        self.selection = Selection(forward.select)
        self._redaction = redaction

    @property
    def destination(self) -> str:
        """Where to, in words, without secrets."""
        forward = self.forward
        return (
            f"kafka {','.join(forward.brokers)}" if forward.to == "kafka" else f"{forward.to} {forward.url}"
        )

    def sender(self, node: str) -> Sender:
        if self.forward.to == "kafka":
            return self._kafka(node)
        return self._http(node)

    def translator(self, identity: ArchiveIdentity, cursor: Cursor) -> Translator:
        known = Known(cursor.boots)
        node = node_name(identity, self.forward)
        if self.forward.dialect == "native":
            return NativeTranslator(node, self.forward.host_name, self.selection, self._redaction, known)
        sonar = Sonar(self.cluster, node, self.forward.host_name, known)
        return SonarTranslator(sonar, self.selection, self._redaction)

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


def node_name(identity: ArchiveIdentity, forward: Forward) -> str:
    """The node's name as the archive knows it."""
    full, short = identity.hostname_full, identity.hostname_short
    names = (full, short) if forward.host_name == "full" else (short, full)
    return next((name for name in names if name), identity.machine_id)
