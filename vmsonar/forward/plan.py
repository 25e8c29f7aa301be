"""Makes senders and translators as the configuration asks for."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from vmsonar_archive.dialect.history import History
from vmsonar_archive.dialect.places import PLACES
from vmsonar_archive.dialect.sonar import BATCH_KINDS
from vmsonar_archive.format.identity import ArchiveIdentity
from vmsonar_archive.format.layout import NAMESPACE_FILE, RECORD_KINDS, SAMPLE
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import UsageError
from vmsonar_archive.system.rights import callers
from vmsonar_archive.system.text import without_query

from vmsonar.config.shipping import Forward
from vmsonar.forward import settings
from vmsonar.forward.kafka import Login
from vmsonar.forward.messages import Sender
from vmsonar.forward.otlp import LOGS, METRICS, OtlpForm, OtlpTranslator
from vmsonar.forward.pump import Topics
from vmsonar.forward.settings import read_secret
from vmsonar.forward.state import Cursor
from vmsonar.forward.translate import RowSelection, SonarTranslator, Translator

if TYPE_CHECKING:
    from vmsonar_archive.bundle.redact import Redactor


class ForwardPlan:
    """The checked configuration; makes new senders and translators as often as they are needed."""

    def __init__(self, forward: Forward, places: int = PLACES) -> None:
        """`places` is how many jobs have series at a time, where metrics are sent."""
        self.forward = forward
        self._places = places
        self.dialect = "otlp" if forward.to == "otlp" else forward.dialect
        self.cluster = settings.check(forward)
        prefix = f"{forward.topic_prefix}." if forward.topic_prefix else ""
        by_kind = {kind: f"{prefix}{self.cluster}.{kind}" for kind in (*RECORD_KINDS, *BATCH_KINDS)}
        if forward.to == "otlp":
            by_kind = {SAMPLE: METRICS, LOGS: LOGS}
        self.topics = Topics(by_kind, int(forward.max_message))
        self.selection = RowSelection(forward.select)
        self._redactor: Redactor | None = None

    @property
    def destination(self) -> str:
        """The receiver in words, without secrets."""
        forward = self.forward
        if forward.to == "kafka":
            return f"kafka {','.join(forward.brokers)}"
        return f"{forward.to} {without_query(forward.url or '')}"

    def is_of(self, destination: str) -> bool:
        """Whether what was sent to that receiver was sent to ours: brokers of one cluster may come and go."""
        if self.forward.to == "kafka" and destination.startswith("kafka "):
            return not set(self.forward.brokers).isdisjoint(destination.removeprefix("kafka ").split(","))
        return destination in ("", self.destination)

    def attend(self, root: Path) -> None:
        """Prepares for this archive: hides names where that is asked for, with its own key unless one is given."""
        forward = self.forward
        if not forward.redact:
            return
        from vmsonar_archive.bundle.redact import Redactor, key_from_namespace, parse_kinds

        if forward.redact_key_file is not None:
            with callers():
                key = read_secret(forward.redact_key_file, "forward.redact_key_file").encode()
        else:
            try:
                key = key_from_namespace(files.read_inside(root, NAMESPACE_FILE))
            except OSError as error:
                said = f"cannot read {root / NAMESPACE_FILE}: {error.strerror}; give redact_key_file"
                raise UsageError(f"forward.redact: {said}") from None
        self._redactor = Redactor(key, parse_kinds(",".join(forward.redact)))

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
        node, host_name, known = self.node(identity), self.forward.host_name, History(cursor.boots)
        if self.dialect == "otlp":
            rest = (node, host_name, known, self.selection, self._redactor)
            return OtlpTranslator(identity.archive, self._places, cursor.carried, *rest)
        if self.dialect == "native":
            return Translator(node, host_name, known, self.selection, self._redactor)
        return SonarTranslator(self.cluster, node, host_name, known, self.selection, self._redactor)

    def _kafka(self, node: str) -> Sender:
        from vmsonar.forward.kafka import KafkaSender

        forward = self.forward
        user = None if forward.auth == "none" else forward.username or self.cluster
        login = Login(",".join(forward.brokers), user, forward.tls.ca_file)
        secrets = settings.secrets(forward)
        return KafkaSender(settings.producer_settings(forward, self.cluster, node), login, secrets)

    def _http(self, node: str) -> Sender:
        from vmsonar.forward.http import Endpoint, Form, HttpSender, JsonForm, ProxyForm

        forward = self.forward
        endpoint = Endpoint(
            forward.url or "",
            self._authorization(),
            settings.tls_context(forward),
            int(forward.max_payload),
            float(forward.timeout),
            settings.secrets(forward),
        )
        form: Form = OtlpForm() if forward.to == "otlp" else JsonForm()
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
