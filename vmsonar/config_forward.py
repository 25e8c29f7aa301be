"""The section `forward` of the configuration."""

from typing import Annotated, Literal

from msgspec import Meta, field

from vmsonar.config_section import Section
from vmsonar.quantities import Duration, Size


class Tls(Section, frozen=True):
    """How the connection is protected. The host's name is always checked."""

    use: Annotated[Literal["auto", "none"], Meta(description="`none` talks to a broker in the clear.")] = (
        "auto"
    )
    ca_file: Annotated[
        str | None, Meta(description="Authorities to trust, in PEM; by default those of the system.")
    ] = None
    certificate_file: Annotated[str | None, Meta(description="Our own certificate, in PEM.")] = None
    key_file: Annotated[
        str | None, Meta(description="Its key; by default in the same file as the certificate.")
    ] = None
    key_password_file: Annotated[str | None, Meta(description="File with the password of the key.")] = None


class Forward(Section, frozen=True):
    """Where `vmsonar forward` sends records."""

    to: Annotated[
        Literal["kafka", "kafka_proxy", "http"],
        Meta(description="Kafka itself, Sonar's HTTP proxy for Kafka, or JSON by HTTP POST."),
    ] = "kafka"
    cluster: Annotated[
        str | None,
        Meta(description="Name of the group of machines; topics are `<cluster>.sample` and so on."),
    ] = None
    brokers: Annotated[list[str], Meta(description="For `kafka`: `host:port` of some brokers.")] = field(
        default_factory=list
    )
    url: Annotated[str | None, Meta(description="For `kafka_proxy` and `http`: the address to post to.")] = (
        None
    )
    dialect: Annotated[Literal["sonar", "native"], Meta(description="Sonar's JSON, or our own records.")] = (
        "sonar"
    )
    topic_prefix: Annotated[str | None, Meta(description="Stands before the topics, with a dot.")] = None
    host_name: Annotated[
        Literal["full", "short"], Meta(description="Which host name is the message's key.")
    ] = "full"
    auth: Annotated[
        Literal["none", "plain", "scram-sha-256", "scram-sha-512", "basic", "bearer"],
        Meta(
            description="`plain` and `scram-…` for Kafka, `plain` for its proxy, `basic` and `bearer` for HTTP."
        ),
    ] = "none"
    username: Annotated[str | None, Meta(description="By default the cluster's name.")] = None
    password_file: Annotated[
        str | None,
        Meta(description="File with the password; a name without a slash is a systemd credential."),
    ] = None
    token_file: Annotated[str | None, Meta(description="The same for the token of `bearer`.")] = None
    tls: Annotated[Tls, Meta(description="How the connection is protected.")] = field(default_factory=Tls)
    compression: Annotated[
        Literal["zstd", "lz4", "gzip", "none"], Meta(description="Of messages to Kafka.")
    ] = "zstd"
    max_message: Annotated[
        Size, Meta(description="A larger message is split by job; not above the broker's own limit.")
    ] = Size(1_000_000)
    max_payload: Annotated[Size, Meta(description="Size of the body of one POST.")] = Size(1_000_000)
    timeout: Annotated[Duration, Meta(description="How long one POST may take.")] = Duration(10)
    select: Annotated[
        list[str],
        Meta(description="Only these kinds of rows (`sysinfo`, `node`, `process`, …); none means all."),
    ] = field(default_factory=list)
    redact: Annotated[
        list[Literal["user", "host", "command", "path", "label", "all"]],
        Meta(
            description="What is replaced by pseudonyms, as `vmsonar bundle --redact` does; ids always are then."
        ),
    ] = field(default_factory=list)
    redact_key_file: Annotated[
        str | None,
        Meta(
            description="File with the key of the pseudonyms; by default one that never leaves the archive."
        ),
    ] = None
    state: Annotated[
        str | None,
        Meta(
            description="Where the cursor is kept. By default `/var/lib/vmsonar-forward`, or "
            "`$XDG_STATE_HOME/vmsonar-forward` for an ordinary user."
        ),
    ] = None
