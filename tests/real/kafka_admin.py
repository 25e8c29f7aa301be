"""What an administrator does on the tests' broker: topics, users, rights.

Each function names its AdminClient until the answer is there: a collected client cancels its requests.
"""

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

SECONDS = 60
ITERATIONS = 4096


def create_topic(client: dict[str, str], name: str, settings: dict[str, str], partitions: int = 1) -> None:
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    admin = AdminClient(client)
    admin.create_topics([topic])[name].result(SECONDS)


def alter_topic(client: dict[str, str], name: str, settings: dict[str, str]) -> None:
    operation = AlterConfigOpType.SET
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value in settings.items()]
    admin = AdminClient(client)
    change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin.incremental_alter_configs([change])[change].result(SECONDS)


def set_scram_password(client: dict[str, str], user: str, password: str, mechanism: str) -> None:
    info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], ITERATIONS)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin = AdminClient(client)
    admin.alter_user_scram_credentials([change])[user].result(SECONDS)


def allow_writing(client: dict[str, str], user: str, prefix: str) -> None:
    """The user may create, describe and write the topics whose names begin with the prefix."""
    operations = (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE)
    bindings = [
        AclBinding(ResourceType.TOPIC, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation,
                   AclPermissionType.ALLOW)
        for operation in operations
    ]  # fmt: skip
    admin = AdminClient(client)
    for future in admin.create_acls(bindings).values():
        future.result(SECONDS)
