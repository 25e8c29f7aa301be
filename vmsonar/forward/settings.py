"""The section `forward` of the configuration, checked as a whole; secrets come from files only."""

import os
import re
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vmsonar_archive.system.errors import UsageError

from vmsonar.config.shipping import CollectKafka, Forward

SASL = {"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
# The ways to log in that go with each receiver.
_LOGINS = {
    "kafka": ("none", *SASL),
    "kafka_proxy": ("plain",),
    "http": ("none", "basic", "bearer"),
    "otlp": ("none", "basic", "bearer"),
}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_SECRET = 64 * 1024


def check(forward: Forward) -> str:
    """Refuses what cannot work, by the key's name; returns the cluster."""
    if forward.cluster is None and forward.to != "otlp":
        raise UsageError("forward.cluster is not set: it names the topics, such as cloud.example.org")
    cluster = forward.cluster or "vmsonar"
    for key, name in (("cluster", cluster), ("topic_prefix", forward.topic_prefix or "x")):
        if not _NAME.fullmatch(name):
            raise UsageError(f"forward.{key}: {name!r} is not letters, digits, dots, dashes and underscores")
    if forward.auth not in _LOGINS[forward.to]:
        known = ", ".join(_LOGINS[forward.to])
        raise UsageError(
            f"forward.auth: {forward.auth} does not go with to: {forward.to}; one of {known} does"
        )
    if forward.to != "kafka":
        _check_url(forward)
    elif not forward.brokers:
        raise UsageError("forward.brokers is empty: give host:port of at least one broker")
    elif forward.auth != "none" and forward.tls.use == "none":
        raise UsageError("forward.auth needs TLS: a password is not sent in the clear; remove tls.use: none")
    return cluster


def _check_url(forward: Forward) -> None:
    if forward.url is None:
        raise UsageError("forward.url is not set: give the address to send to")
    parts = urlsplit(forward.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"forward.url: {forward.url!r} is not an http or https address")
    if parts.username or parts.password:
        raise UsageError("forward.url holds a password: use auth, username and password_file")
    if parts.scheme == "http" and forward.to == "otlp" and parts.hostname not in _LOOPBACK:
        raise UsageError("forward.url: OTLP goes in the clear to this machine alone; use https")
    if parts.scheme == "http" and forward.auth != "none" and parts.hostname not in _LOOPBACK:
        raise UsageError("forward.url: a password is not sent in the clear; use https")


def password(login: Forward | CollectKafka, section: str = "forward") -> str:
    if login.password_file is None:
        raise UsageError(f"{section}.auth: {login.auth} needs password_file")
    return read_secret(login.password_file, f"{section}.password_file")


def secrets(forward: Forward) -> tuple[str, ...]:
    """What the receiver gets to know from us, and may quote when it complains."""
    known = []
    if forward.auth == "bearer" and forward.token_file is not None:
        known.append(read_secret(forward.token_file, "forward.token_file"))
    elif forward.auth != "none":
        known.append(password(forward))
    return (*known, urlsplit(forward.url).query if forward.url else "")


def producer_settings(forward: Forward, cluster: str, node: str) -> dict[str, Any]:
    """librdkafka's properties (its CONFIGURATION.md)."""
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(forward.brokers),
        "client.id": f"{cluster}/{node}",
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": forward.compression,
        # The archive is the queue: librdkafka tries for ever, and holds no more than the window anyway.
        "message.timeout.ms": 0,
        "message.max.bytes": max(int(forward.max_message), 1000),
        "queue.buffering.max.kbytes": 16 * 1024,
        "linger.ms": 50,
        "reconnect.backoff.ms": 250,
        "reconnect.backoff.max.ms": 10_000,
        "topic.metadata.propagation.max.ms": 20_000,
        "partitioner": "murmur2_random",
        "statistics.interval.ms": 5000,
        "socket.keepalive.enable": True,
        "log_level": 0,
    }
    return settings | security(forward, cluster)


def security(login: Forward | CollectKafka, usual_name: str, section: str = "forward") -> dict[str, Any]:
    """librdkafka's properties of a protected connection; errors name keys of that section."""
    if login.tls.use == "none":
        return {"security.protocol": "PLAINTEXT"}
    tls = login.tls
    settings: dict[str, Any] = {
        "security.protocol": "SSL" if login.auth == "none" else "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
    }
    if tls.ca_file:
        settings["ssl.ca.location"] = _readable(tls.ca_file, f"{section}.tls.ca_file")
    if tls.certificate_file:
        key_file = tls.key_file or tls.certificate_file
        settings["ssl.certificate.location"] = _readable(
            tls.certificate_file, f"{section}.tls.certificate_file"
        )
        settings["ssl.key.location"] = _readable(key_file, f"{section}.tls.key_file")
    if tls.key_password_file:
        settings["ssl.key.password"] = read_secret(tls.key_password_file, f"{section}.tls.key_password_file")
    if login.auth != "none":
        settings["sasl.mechanisms"] = SASL[login.auth]
        settings["sasl.username"] = login.username or usual_name
        settings["sasl.password"] = password(login, section)
    return settings


def tls_context(forward: Forward) -> ssl.SSLContext | None:
    """For HTTPS: the system's authorities, or the given one; a client certificate where there is one."""
    tls = forward.tls
    if forward.url is None or not forward.url.startswith("https:"):
        return None
    context = ssl.create_default_context(
        cafile=_readable(tls.ca_file, "forward.tls.ca_file") if tls.ca_file else None
    )
    if tls.certificate_file:
        secret = tls.key_password_file
        given = read_secret(secret, "forward.tls.key_password_file") if secret else None
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, given)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"forward.tls.certificate_file: cannot use {tls.certificate_file}: {error}"
            ) from None
    return context


def secret_path(name: str, key: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The path of a file with a secret; a bare name is that of a systemd credential."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if "/" in name:
        return Path(name)
    if not folder:
        raise UsageError(
            f"{key}: {name} is not a path, and there are no systemd credentials: give a path, "
            f"or LoadCredential={name}:/path in the unit"
        )
    return Path(folder) / name


def read_secret(name: str, key: str, environment: Mapping[str, str] = os.environ) -> str:
    """The content of a file without its last newline; a bare name is that of a systemd credential."""
    path = secret_path(name, key, environment)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_SECRET)
    except OSError as error:
        raise UsageError(f"{key}: cannot read {path}: {error.strerror}") from None
    if mode & stat.S_IROTH:
        raise UsageError(f"{key}: everybody can read {path}: chmod 600 {path}")
    secret = content.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not secret:
        raise UsageError(f"{key}: {path} is empty")
    return secret


def _readable(path: str, key: str) -> str:
    try:
        open(path, "rb").close()
    except OSError as error:
        raise UsageError(f"{key}: cannot read {path}: {error.strerror}") from None
    return path
