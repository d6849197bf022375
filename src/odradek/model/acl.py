"""ACLs and their codes: operations, resource types, the operations of each resource type."""

from enum import IntEnum
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"  # the only resource of type CLUSTER
WILDCARD: Final = "*"  # every host; as the name of a literal pattern: every resource
WILDCARD_PRINCIPAL: Final = "User:*"


class AclOperation(IntEnum):
    """Operations with their codes in requests (Kafka: `AclOperation`)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Resource types with their codes in requests (Kafka: `ResourceType`)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


def words(code: AclOperation | ResourceType) -> str:
    """The name as Kafka stores and logs it: `DescribeConfigs`."""
    return "".join(word.capitalize() for word in code.name.split("_"))


# The operations each resource type supports: what `*_authorized_operations` fields may contain.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


class ResourcePattern(NamedTuple):
    """The resources of an ACL: one resource, or all whose names have this prefix."""

    resource_type: ResourceType
    name: str
    prefixed: bool = False


class AclEntry(NamedTuple):
    """One ACL on a pattern: principal, host, operation, allow or deny."""

    principal: str
    host: str
    operation: AclOperation
    allowed: bool


class Binding(NamedTuple):
    """One ACL on one pattern."""

    pattern: ResourcePattern
    entry: AclEntry
