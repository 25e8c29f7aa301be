"""Sections about what leaves a machine, and about those who receive it."""

from typing import Annotated, Literal

from msgspec import Meta, field
from vmsonar_archive.records.fields import about

from vmsonar.config.quantities import ByteSize, Days, Duration, Section


class Save(Section, frozen=True):
    """Where `vmsonar teardown` brings what was recorded before the VM is gone."""

    to: Annotated[
        str | None,
        about(
            "A folder, `s3://bucket/prefix/`, an `https://` URL that takes a PUT, `@FILE` with such a URL "
            "in it, or `mint+https://…`, an endpoint that gives a fresh one each time; `{archive}`, `{node}` and "
            "`{time}` are filled in, and a URL without `{time}` takes one bundle only. By default bundles stay in "
            "`waiting`."
        ),
    ] = None
    token_file: Annotated[
        str | None,
        about(
            "For `mint+https://`: file with the token that the endpoint wants; a name without a slash "
            "is a systemd credential."
        ),
    ] = None
    sign: Annotated[
        str,
        about(
            "An ed25519 key file, or the name of a systemd credential; `auto` is the credential "
            "`host-key` or the host's SSH key where it can be read, `none` does not sign."
        ),
    ] = "auto"
    waiting: Annotated[
        str, about("Where bundles wait that could not be sent; they go out at the next chance.")
    ] = "/var/lib/vmsonar-bundles"
    notice: Annotated[
        Literal["none", "aws", "gcp", "azure"],
        about("Whose metadata service is asked, every 5 s, whether this VM is about to be taken away."),
    ] = "none"


class Tls(Section, frozen=True):
    """How the connection is protected. The host's name is always checked."""

    use: Annotated[Literal["auto", "none"], about("`none` talks to a broker in the clear.")] = "auto"
    ca_file: Annotated[str | None, about("Authorities to trust, in PEM; by default those of the system.")] = (
        None
    )
    certificate_file: Annotated[str | None, about("Our own certificate, in PEM.")] = None
    key_file: Annotated[str | None, about("Its key; by default in the same file as the certificate.")] = None
    key_password_file: Annotated[str | None, about("File with the password of the key.")] = None


class Forward(Section, frozen=True):
    """Where `vmsonar forward` sends records."""

    to: Annotated[
        Literal["kafka", "kafka_proxy", "http", "otlp"],
        about(
            "Kafka itself, Sonar's HTTP proxy for Kafka, JSON by HTTP POST, or an OpenTelemetry collector."
        ),
    ] = "kafka"
    cluster: Annotated[
        str | None, about("Name of the group of machines; topics are `<cluster>.sample` and so on.")
    ] = None
    brokers: Annotated[list[str], about("For `kafka`: `host:port` of some brokers.")] = []
    url: Annotated[str | None, about("For `kafka_proxy`, `http` and `otlp`: the address to post to.")] = None
    dialect: Annotated[Literal["sonar", "native"], about("Sonar's JSON, or our own records.")] = "sonar"
    topic_prefix: Annotated[str | None, about("Stands before the topics, with a dot.")] = None
    host_name: Annotated[Literal["full", "short"], about("Which host name is the message's key.")] = "full"
    auth: Annotated[
        Literal["none", "plain", "scram-sha-256", "scram-sha-512", "basic", "bearer"],
        about("`plain` and `scram-…` for Kafka, `plain` for its proxy, `basic` and `bearer` for HTTP."),
    ] = "none"
    username: Annotated[str | None, about("By default the cluster's name.")] = None
    password_file: Annotated[
        str | None, about("File with the password; a name without a slash is a systemd credential.")
    ] = None
    token_file: Annotated[str | None, about("The same for the token of `bearer`.")] = None
    tls: Annotated[Tls, about("How the connection is protected.")] = Tls()
    compression: Annotated[Literal["zstd", "lz4", "gzip", "none"], about("Of messages to Kafka.")] = "zstd"
    max_message: Annotated[
        ByteSize, about("A larger message is split by job; not above the broker's own limit.")
    ] = ByteSize(1_000_000)
    max_payload: Annotated[ByteSize, about("Size of the body of one POST.")] = ByteSize(1_000_000)
    timeout: Annotated[Duration, about("How long one POST may take.")] = Duration(10)
    select: Annotated[
        list[str], about("Only these kinds of rows (`sysinfo`, `node`, `process`, …); none means all.")
    ] = []
    redact: Annotated[
        list[Literal["user", "host", "command", "path", "label", "all"]],
        about("What is replaced by pseudonyms, as `vmsonar bundle --redact` does; ids always are then."),
    ] = []
    redact_key_file: Annotated[
        str | None,
        about("File with the key of the pseudonyms; by default one that never leaves the archive."),
    ] = None
    state: Annotated[
        str | None,
        about(
            "Where the cursor is kept. By default `/var/lib/vmsonar-forward`, or "
            "`$XDG_STATE_HOME/vmsonar-forward` for an ordinary user."
        ),
    ] = None


class MetricsTls(Section, frozen=True):
    """The exporter's certificate; without one it talks in the clear."""

    certificate_file: Annotated[str | None, about("Its certificate, in PEM.")] = None
    key_file: Annotated[
        str | None,
        about(
            "Its key; by default in the same file as the certificate. A name without a slash is a systemd credential."
        ),
    ] = None
    client_ca_file: Annotated[
        str | None, about("Authorities, in PEM: only clients with a certificate of theirs are answered.")
    ] = None


class Metrics(Section, frozen=True):
    """What `vmsonar metrics` shows, and to whom."""

    places: Annotated[
        int,
        Meta(
            description="How many jobs have series at a time; the same for each other kind of which there can be many.",
            ge=0,
            le=10_000,
        ),
    ] = 100
    username: Annotated[str | None, about("Who may ask, by HTTP's basic authentication.")] = None
    password_file: Annotated[
        str | None, about("File with the password; a name without a slash is a systemd credential.")
    ] = None
    tls: Annotated[MetricsTls, about("The exporter's certificate.")] = MetricsTls()


class Kept(Section, frozen=True):
    """How long something is kept; what is oldest goes first."""

    max_days: Annotated[Days | None, about("Age in days; by default for ever.")] = None
    max_bytes: Annotated[ByteSize | None, about("Size of all of it; by default no limit.")] = None


class Retention(Section, frozen=True):
    """What a fleet keeps: each kind has limits of its own."""

    archives: Annotated[Kept, about("The records as they came, and tables beside them.")] = Kept()
    tables: Annotated[Kept, about("The lake's tables of rows.")] = Kept()
    rollups: Annotated[Kept, about("The lake's `series_day`: sums per series and day.")] = Kept()
    refused: Annotated[
        Kept, about("What did not verify. When it is full, more stays where it came from.")
    ] = Kept(max_days=30, max_bytes=ByteSize(1024**3))


class CollectKafka(Section, frozen=True):
    """Topics of the native dialect that `vmsonar collect` reads."""

    brokers: Annotated[list[str], about("`host:port` of some brokers; none means no Kafka.")] = []
    cluster: Annotated[str | None, about("Only topics of this cluster; by default of all.")] = None
    topic_prefix: Annotated[str | None, about("What stands before the topics, with a dot.")] = None
    group: Annotated[str, about("The consumer group: collectors of one group share the partitions.")] = (
        "vmsonar-collect"
    )
    every: Annotated[Duration, about("How often what came is put on disk and acknowledged.")] = Duration(30)
    auth: Annotated[Literal["none", "plain", "scram-sha-256", "scram-sha-512"], about("How to log in.")] = (
        "none"
    )
    username: Annotated[str | None, about("By default the group's name.")] = None
    password_file: Annotated[
        str | None, about("File with the password; a name without a slash is a systemd credential.")
    ] = None
    tls: Annotated[Tls, about("How the connection is protected.")] = Tls()


class Mail(Section, frozen=True):
    """Mail by SMTP."""

    to: Annotated[list[str], about("Addresses; none means no mail.")] = []
    sender: Annotated[str, about("The address it comes from.")] = "vmsonar@localhost"
    server: Annotated[str, about("`host:port` of the server that takes it.")] = "localhost:25"
    tls: Annotated[
        Literal["none", "starttls", "tls"], about("Whether the connection is protected; a password needs it.")
    ] = "none"
    username: Annotated[str | None, about("To log in with; by default nobody does.")] = None
    password_file: Annotated[
        str | None, about("File with the password; a name without a slash is a systemd credential.")
    ] = None


class Hooks(Section, frozen=True):
    """Who is told when something happens to a machine; each thing once, and once when it is over."""

    on: Annotated[
        list[Literal["lost", "problem", "disk_will_fill", "idle"]],
        about(
            "What is told: gone without a word, verdicts that are problems, a disk that will fill, idle machines."
        ),
    ] = field(default_factory=lambda: ["lost", "problem", "disk_will_fill", "idle"])
    webhook: Annotated[str | None, about("An https address that takes a POST of JSON.")] = None
    webhook_secret_file: Annotated[
        str | None,
        about(
            "File with the key of its signature (`X-Vmsonar-Signature`, HMAC-SHA256 of time, dot and body)."
        ),
    ] = None
    command: Annotated[
        list[str], about("A program and its arguments, without a shell; it gets the JSON on standard input.")
    ] = []
    mail: Annotated[Mail, about("Mail by SMTP.")] = Mail()


class Watch(Section, frozen=True):
    """When a machine counts as late, as lost, and as idle."""

    shipping: Annotated[
        Duration | None,
        about("How often machines ship. By default each one's own: the median of what came lately."),
    ] = None
    idle: Annotated[
        Duration | None, about("Tell of machines that did nothing for so long; by default of none.")
    ] = None
    judge: Annotated[Duration, about("How often each machine is judged anew, for verdicts.")] = Duration(3600)


class FleetSection(Section, frozen=True):
    """The receiving half: `vmsonar collect`."""

    place: Annotated[
        str | None,
        about(
            "The fleet's folder. By default `/var/lib/vmsonar-fleet`, or `$XDG_STATE_HOME/vmsonar-fleet` "
            "for an ordinary user. `--fleet` and `VMSONAR_FLEET` override it."
        ),
    ] = None
    sources: Annotated[
        list[str], about("Folders and `s3://bucket/prefix` addresses where bundles and increments arrive.")
    ] = []
    every: Annotated[Duration, about("How often sources are looked at.")] = Duration(5)
    keep_shipped: Annotated[bool, about("Leave in the sources what was filed.")] = False
    allowed_signers_file: Annotated[
        str | None, about("Take only bundles that one of these has signed, as `verify --allowed-signers`.")
    ] = None
    signer: Annotated[str | None, about("The name in that file that has to have signed.")] = None
    lake: Annotated[
        Literal["none", "auto"], about("Whether finished days are added to the lake as Parquet.")
    ] = "none"
    lake_at: Annotated[
        str | None, about("Where the lake lies: `s3://bucket/prefix`; by default in the fleet's folder.")
    ] = None
    retention: Annotated[Retention, about("What is kept, and how long.")] = Retention()
    kafka: Annotated[CollectKafka, about("Topics that are read.")] = CollectKafka()
    watch: Annotated[Watch, about("When a machine counts as late, lost or idle.")] = Watch()
    hooks: Annotated[Hooks, about("Who is told.")] = Hooks()
