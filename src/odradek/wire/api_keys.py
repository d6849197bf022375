"""The APIs: key, name, versions, first flexible version; and the modules of their messages.

    served        what our broker advertises and answers, on every listener. APIs that only brokers
                  send each other (`inter_broker`) are refused with CLUSTER_AUTHORIZATION_FAILED on
                  every listener but the inter-broker listener
    accepted      the served versions and later ones that are not always advertised
    kafka         what a broker of Apache Kafka 3.9 answers in ZooKeeper mode; empty for the one
                  API that is our own
    decodable     from the first version served to the last of Kafka 3.9, or the last accepted:
                  what our messages declare, because one cluster may have brokers of both kinds
    flexible_from the first flexible version (KIP-482); None: the API has none

Served is what Kafka 3.9 serves. AddPartitionsToTxn 4-5 is for brokers and needs ClusterAction;
clients see it advertised, as in Kafka. ConsumerGroupHeartbeat, ConsumerGroupDescribe and Envelope
are advertised and refused, as in Kafka's ZooKeeper mode. Transactions of
version 2 (KIP-890) come after 3.9: their versions are advertised while every broker of the cluster
is an Odradek broker (`odradek.broker.cluster.features`).

DescribeState is our own (docs/decisions.md, "An API of our own, for our own tools"). Its key is far
beyond Kafka's, and it is advertised only to clients whose software name is `OWN_SOFTWARE`.

Message modules are imported at their first use: a broker uses a few of them in its first second,
a tool two or three at all.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from odradek.model.errors import MalformedRequestError
from odradek.wire.schema import Message, Versions


class ApiKey(IntEnum):
    """The API key in a request's header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_STATE = 31_000


class Api(NamedTuple):
    """An API and its version ranges; see the head of this module."""

    key: ApiKey
    name: str  # as Kafka writes it
    served: Versions
    kafka: Versions
    flexible_from: int | None
    inter_broker: bool

    @property
    def first(self) -> int:
        return self.served.first

    @property
    def last(self) -> int:
        return self.served.last

    @property
    def accepted(self) -> Versions:
        """The versions served, and those that are not always advertised."""
        beyond = TRANSACTION_VERSION_2.get(self.key)
        return self.served if beyond is None else Versions(self.served.first, beyond)

    @property
    def decodable(self) -> Versions:
        """The versions that our messages declare."""
        return _decodable(self.key)

    def is_flexible(self, version: int) -> bool:
        """Whether a version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def request_class(self) -> type[Message]:
        return _message_class(self.key, "Request")

    @property
    def response_class(self) -> type[Message]:
        return _message_class(self.key, "Response")


@cache
def _decodable(key: int) -> Versions:
    api = APIS[key]
    return Versions(api.served.first, max(api.kafka.last, api.accepted.last))


@cache
def _message_class(key: ApiKey, side: str) -> type[Message]:
    module = import_module(f"odradek.wire.messages.{key.name.lower()}")
    found: type[Message] = getattr(module, APIS[key].name + side)
    return found


# The last versions for clients of transactions of version 2.
TRANSACTION_VERSION_2: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}

OWN_SOFTWARE: Final = "odradek"  # the software name of our clients in ApiVersions
OWN_APIS: Final = frozenset({ApiKey.DESCRIBE_STATE})
_NOT_SERVED: Final = (0, -1)

_CLIENTS = False
_BROKERS = True

# fmt: off
_ROWS: Final = (
    # key, name, served, Kafka 3.9, flexible from, who sends it
    (0, "Produce", (0, 11), (0, 11), 9, _CLIENTS),
    (1, "Fetch", (0, 17), (0, 17), 12, _CLIENTS),
    (2, "ListOffsets", (0, 9), (0, 9), 6, _CLIENTS),
    (3, "Metadata", (0, 12), (0, 12), 9, _CLIENTS),
    (4, "LeaderAndIsr", (0, 7), (0, 7), 4, _BROKERS),
    (5, "StopReplica", (0, 4), (0, 4), 2, _BROKERS),
    (6, "UpdateMetadata", (0, 8), (0, 8), 6, _BROKERS),
    (7, "ControlledShutdown", (0, 3), (0, 3), 3, _BROKERS),
    (8, "OffsetCommit", (0, 9), (0, 9), 8, _CLIENTS),
    (9, "OffsetFetch", (0, 9), (0, 9), 6, _CLIENTS),
    (10, "FindCoordinator", (0, 6), (0, 6), 3, _CLIENTS),
    (11, "JoinGroup", (0, 9), (0, 9), 6, _CLIENTS),
    (12, "Heartbeat", (0, 4), (0, 4), 4, _CLIENTS),
    (13, "LeaveGroup", (0, 5), (0, 5), 4, _CLIENTS),
    (14, "SyncGroup", (0, 5), (0, 5), 4, _CLIENTS),
    (15, "DescribeGroups", (0, 5), (0, 5), 5, _CLIENTS),
    (16, "ListGroups", (0, 5), (0, 5), 3, _CLIENTS),
    (17, "SaslHandshake", (0, 1), (0, 1), None, _CLIENTS),
    (18, "ApiVersions", (0, 4), (0, 4), 3, _CLIENTS),
    (19, "CreateTopics", (0, 7), (0, 7), 5, _CLIENTS),
    (20, "DeleteTopics", (0, 6), (0, 6), 4, _CLIENTS),
    (21, "DeleteRecords", (0, 2), (0, 2), 2, _CLIENTS),
    (22, "InitProducerId", (0, 5), (0, 5), 2, _CLIENTS),
    (23, "OffsetForLeaderEpoch", (0, 4), (0, 4), 4, _CLIENTS),
    (24, "AddPartitionsToTxn", (0, 5), (0, 5), 3, _CLIENTS),
    (25, "AddOffsetsToTxn", (0, 4), (0, 4), 3, _CLIENTS),
    (26, "EndTxn", (0, 4), (0, 4), 3, _CLIENTS),
    (27, "WriteTxnMarkers", (0, 1), (0, 1), 1, _CLIENTS),
    (28, "TxnOffsetCommit", (0, 4), (0, 4), 3, _CLIENTS),
    (29, "DescribeAcls", (0, 3), (0, 3), 2, _CLIENTS),
    (30, "CreateAcls", (0, 3), (0, 3), 2, _CLIENTS),
    (31, "DeleteAcls", (0, 3), (0, 3), 2, _CLIENTS),
    (32, "DescribeConfigs", (0, 4), (0, 4), 4, _CLIENTS),
    (33, "AlterConfigs", (0, 2), (0, 2), 2, _CLIENTS),
    (34, "AlterReplicaLogDirs", (0, 2), (0, 2), 2, _CLIENTS),
    (35, "DescribeLogDirs", (0, 4), (0, 4), 2, _CLIENTS),
    (36, "SaslAuthenticate", (0, 2), (0, 2), 2, _CLIENTS),
    (37, "CreatePartitions", (0, 3), (0, 3), 2, _CLIENTS),
    (38, "CreateDelegationToken", (0, 3), (0, 3), 2, _CLIENTS),
    (39, "RenewDelegationToken", (0, 2), (0, 2), 2, _CLIENTS),
    (40, "ExpireDelegationToken", (0, 2), (0, 2), 2, _CLIENTS),
    (41, "DescribeDelegationToken", (0, 3), (0, 3), 2, _CLIENTS),
    (42, "DeleteGroups", (0, 2), (0, 2), 2, _CLIENTS),
    (43, "ElectLeaders", (0, 2), (0, 2), 2, _CLIENTS),
    (44, "IncrementalAlterConfigs", (0, 1), (0, 1), 1, _CLIENTS),
    (45, "AlterPartitionReassignments", (0, 0), (0, 0), 0, _CLIENTS),
    (46, "ListPartitionReassignments", (0, 0), (0, 0), 0, _CLIENTS),
    (47, "OffsetDelete", (0, 0), (0, 0), None, _CLIENTS),
    (48, "DescribeClientQuotas", (0, 1), (0, 1), 1, _CLIENTS),
    (49, "AlterClientQuotas", (0, 1), (0, 1), 1, _CLIENTS),
    (50, "DescribeUserScramCredentials", (0, 0), (0, 0), 0, _CLIENTS),
    (51, "AlterUserScramCredentials", (0, 0), (0, 0), 0, _CLIENTS),
    (56, "AlterPartition", (0, 3), (0, 3), 0, _BROKERS),
    (57, "UpdateFeatures", (0, 1), (0, 1), 0, _CLIENTS),
    (58, "Envelope", (0, 0), (0, 0), 0, _BROKERS),
    (60, "DescribeCluster", (0, 1), (0, 1), 0, _CLIENTS),
    (61, "DescribeProducers", (0, 0), (0, 0), 0, _CLIENTS),
    (65, "DescribeTransactions", (0, 0), (0, 0), 0, _CLIENTS),
    (66, "ListTransactions", (0, 1), (0, 1), 0, _CLIENTS),
    (67, "AllocateProducerIds", (0, 0), (0, 0), 0, _BROKERS),
    (68, "ConsumerGroupHeartbeat", (0, 0), (0, 0), 0, _CLIENTS),
    (69, "ConsumerGroupDescribe", (0, 0), (0, 0), 0, _CLIENTS),
    (31_000, "DescribeState", (0, 0), _NOT_SERVED, 0, _CLIENTS),
)
# fmt: on

APIS: Final[dict[int, Api]] = {
    key: Api(ApiKey(key), name, Versions(*served), Versions(*kafka), flexible_from, inter_broker)
    for key, name, served, kafka, flexible_from, inter_broker in _ROWS
}
API_NAMES: Final = {key: api.name for key, api in APIS.items()}


class ForeignApi(NamedTuple):
    """An API that only KRaft brokers serve, and that our client sends them."""

    name: str
    decodable: Versions
    flexible_from: int


FOREIGN_APIS: Final[dict[int, ForeignApi]] = {
    75: ForeignApi("DescribeTopicPartitions", Versions(0, 0), 0),
}


def client_api(key: int) -> Api | ForeignApi:
    """An API that our client sends, including those of KRaft brokers.

    Raises:
        KeyError: the key is unknown.
    """
    return APIS.get(key) or FOREIGN_APIS[key]


def api(key: int) -> Api:
    """The API of a key.

    Raises:
        MalformedRequestError: the key is unknown.
    """
    known = APIS.get(key)
    if known is None:
        raise MalformedRequestError(f"api key {key}; no such API here")
    return known


def request_class(key: int) -> type[Message]:
    return api(key).request_class


def response_class(key: int) -> type[Message]:
    return api(key).response_class
