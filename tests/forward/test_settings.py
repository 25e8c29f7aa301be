"""A configuration that cannot work is refused by the key's name, and secrets come from files alone."""

from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.system.errors import UsageError

from vmsonar.config.schema import Config, decode_value, plain
from vmsonar.config.shipping import Forward
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.settings import producer_settings, read_secret

KAFKA = {"cluster": "c.example", "brokers": ["b:9092"]}


def forward(**fields: object) -> Forward:
    return msgspec.convert(fields, Forward, dec_hook=decode_value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"brokers": ["b:1"]}, "forward.cluster is not set: it names the topics, such as cloud.example.org"),
        ({"cluster": "a b"}, "forward.cluster: 'a b' is not letters, digits, dots, dashes and underscores"),
        ({"cluster": "c"}, "forward.brokers is empty: give host:port of at least one broker"),
        (
            {**KAFKA, "auth": "basic"},
            "forward.auth: basic does not go with to: kafka; one of none, plain, scram-sha-256, scram-sha-512 does",
        ),
        (
            {**KAFKA, "auth": "plain", "tls": {"use": "none"}},
            "forward.auth needs TLS: a password is not sent in the clear; remove tls.use: none",
        ),
        ({"cluster": "c", "to": "http"}, "forward.url is not set: give the address to send to"),
        (
            {"cluster": "c", "to": "http", "url": "ftp://x"},
            "forward.url: 'ftp://x' is not an http or https address",
        ),
        (
            {"cluster": "c", "to": "http", "url": "https://u:p@x/"},
            "forward.url holds a password: use auth, username and password_file",
        ),
        (
            {"cluster": "c", "to": "http", "url": "http://x/", "auth": "bearer"},
            "forward.url: a password is not sent in the clear; use https",
        ),
    ],
)
def test_what_cannot_work(fields: dict, message: str) -> None:
    with pytest.raises(UsageError) as error:
        ForwardPlan(forward(**fields))
    assert str(error.value) == message


def test_a_secret_is_a_file_or_a_credential(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("hush\n")
    path.chmod(0o640)
    assert read_secret(str(path), "key") == "hush"
    assert read_secret("password", "key", {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == "hush"
    path.chmod(0o644)
    with pytest.raises(UsageError, match=f"^key: everybody can read {path}: chmod 600 {path}$"):
        read_secret(str(path), "key")
    with pytest.raises(
        UsageError, match=r"^key: nothing is not a path, and there are no systemd credentials: "
    ):
        read_secret("nothing", "key", {})
    with pytest.raises(UsageError, match="No such file"):
        read_secret(str(tmp_path / "absent"), "key")
    path.chmod(0o600)
    path.write_text("\n")
    with pytest.raises(UsageError, match=r"is empty$"):
        read_secret(str(path), "key")


def test_the_producer_waits_for_all_replicas_and_checks_the_host(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hush")
    (tmp_path / "password").chmod(0o600)
    for name in ("ca.pem", "client.pem"):
        (tmp_path / name).write_text("x")
    settings = producer_settings(
        forward(
            **KAFKA,
            auth="scram-sha-512",
            password_file=str(tmp_path / "password"),
            tls={"ca_file": str(tmp_path / "ca.pem"), "certificate_file": str(tmp_path / "client.pem")},
        ),
        "c.example",
        "vm",
    )
    expected = {
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": "zstd",
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "c.example",
        "sasl.password": "hush",
        "client.id": "c.example/vm",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "client.pem"),
        "ssl.key.location": str(tmp_path / "client.pem"),
    }
    assert settings.items() >= expected.items()


def test_the_configuration_in_force_holds_no_secret(tmp_path: Path) -> None:
    """It goes into sysinfo: names of files may, what is in them may not."""
    section = forward(**KAFKA, auth="plain", password_file="/etc/vmsonar/password")
    shown = plain(Config(forward=section))["forward"]
    assert shown["password_file"] == "/etc/vmsonar/password"
    assert not [key for key in shown if key in ("password", "token")]


@pytest.mark.parametrize("key", ["password", "token", "sasl"])
def test_a_secret_in_the_file_itself_is_refused(key: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        forward(**{key: "hush"})
