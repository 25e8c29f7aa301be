"""The settings of the tests' Kafka broker (Kafka's documentation, section "Broker Configs")."""

from pathlib import Path

LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
"""


def server_properties(
    data: Path,
    authority: Path,
    key_and_chain: Path,
    ports: tuple[int, int, int],
    plain_users: dict[str, str],
    admin: str,
) -> dict[str, str]:
    plain, secure, controller = ports
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://localhost:{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        **_security(authority, key_and_chain, plain_users, admin),
        **_SMALL,
    }


def _security(
    authority: Path, key_and_chain: Path, plain_users: dict[str, str], admin: str
) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in plain_users.items())
    login = "org.apache.kafka.common.security"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_and_chain),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required {users};",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Whoever comes over PLAINTEXT is ANONYMOUS; so is the broker itself.
        "super.users": f"User:{admin};User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }


# One node, few partitions, no waiting for more consumers: the broker starts and answers fast.
_SMALL = {
    "num.partitions": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "controlled.shutdown.enable": "false",
    # A killed broker may not return before its old session has ended.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
