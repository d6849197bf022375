"""The requests of the ACL matrix, and the state of the cluster for which they are made.

The state has the topics `ta1`, `ta2`, `ta9` and `tb`, the groups `ga1`, `ga2`, `ga9` and `gb` with
committed offsets, the transactional ids `xa1` and `xb`, and `xa2` with an open transaction. Names
with `x` at the end (`tax`) do not exist. The delegation tokens are in `TOKENS`. A request either
changes nothing, because it is refused after its permissions have been checked or only validated, or
`undo` restores the state.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tests.recorded.acl_matrix.situations import ADMIN, ALICE, BOB

from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import APIS
from odradek.wire.schema import Message

BROKER_ID: Final = 1
TOPICS: Final = ("ta1", "ta2", "ta9", "tb")
GROUPS: Final = ("ga1", "ga2", "ga9", "gb")
TRANSACTIONS: Final = ("xa1", "xa2", "xb")
OPEN_TRANSACTION: Final = "xa2"
NEW_TOPICS: Final = ("tan", "tbn")  # requests create them; `undo` deletes them
_SOME: Final = ("ta1", "ta2", "tb", "tax")
_UNKNOWN_ID: Final = b"there is none of"
_OTHER_PRODUCER: Final = 987_654  # not that of any transactional id
_KEYS: Final = {api.name: key for key, api in APIS.items()}


class Token(NamedTuple):
    """A delegation token: its principals tell it from the others."""

    owner: str
    requester: str
    renewers: tuple[str, ...] = ()


TOKENS: Final = {
    "own": Token(ALICE, ALICE),
    "renewable": Token(BOB, BOB, (ALICE,)),
    "requested": Token(BOB, ALICE),
    "bobs": Token(BOB, BOB),
    "admins": Token(ADMIN, ADMIN),
}


class Probe(NamedTuple):
    """A request in one version, and how what it may have changed is undone."""

    name: str
    api: str
    version: int
    fields: Mapping[str, Any]
    undo: str = ""

    def __str__(self) -> str:
        return self.name

    def request(self, ids: Mapping[str, bytes]) -> Message:
        """The request; `ids` has the ids of topics and the HMACs of tokens, by their names."""
        return _made(APIS[_KEYS[self.api]].request_class, self.fields, ids)


def _made(kind: type[Message], fields: Mapping[str, Any], ids: Mapping[str, bytes]) -> Any:
    parts = {field.name: field.part for field in kind.SCHEMA.fields}
    made = {}
    for name, value in fields.items():
        part = parts[name]
        if name in ("topic_id", "hmac"):
            made[name] = ids.get(value, _UNKNOWN_ID)
        elif isinstance(value, Mapping) and isinstance(part, type):
            made[name] = _made(part, value, ids)
        elif isinstance(value, list) and isinstance(part, type):
            made[name] = [_made(part, item, ids) for item in value]
        else:
            made[name] = value
    return kind(**made)


def _batch(**fields: Any) -> bytes:
    return bytes(build_batch([Record(None, b"x", 1_700_000_000_000)], **fields))


PLAIN_BATCH: Final = _batch()
_IDEMPOTENT: Final = _batch(producer_id=4711, producer_epoch=0, base_sequence=0)
_TRANSACTIONAL: Final = _batch(
    producer_id=_OTHER_PRODUCER, producer_epoch=0, base_sequence=0, transactional=True
)


def _produced(records: bytes, *topics: str) -> list[dict[str, Any]]:
    part = {"index": 0, "records": records}
    return [{"name": topic, "partition_data": [part]} for topic in topics or _SOME]


def _data() -> Iterator[Probe]:
    for version in (3, 7, 9, 11):
        fields = {"acks": 1, "timeout_ms": 1000, "topic_data": _produced(PLAIN_BATCH)}
        yield Probe("", "Produce", version, fields)
    produce = {"acks": -1, "timeout_ms": 1000}
    for name, transactional_id, records in (
        ("idempotent", None, _IDEMPOTENT),
        ("transactional", "xa1", _TRANSACTIONAL),
        ("transactional, by an unknown id", "xax", _TRANSACTIONAL),
        ("transactional, without an id", None, _TRANSACTIONAL),
        ("with an id, not transactional", "xa1", PLAIN_BATCH),
    ):
        fields = {
            **produce,
            "transactional_id": transactional_id,
            "topic_data": _produced(records, "ta1", "tb"),
        }
        yield Probe(name, "Produce", 9, fields)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    by_name = [{"topic": topic, "partitions": [part]} for topic in _SOME]
    by_id = [{"topic_id": topic, "partitions": [part]} for topic in _SOME]
    for version in (4, 6, 7, 11, 12, 13, 16, 17):
        topics = by_id if version >= 13 else by_name
        fields = {"max_wait_ms": 0, "min_bytes": 0, "topics": topics}
        yield Probe("", "Fetch", version, fields)
        if version in (11, 12, 16):
            follower = (
                {"replica_id": 7}
                if version < 15
                else {"replica_state": {"replica_id": 7, "replica_epoch": 5}}
            )
            yield Probe("as a follower", "Fetch", version, {**fields, **follower})
    earliest = {"partition_index": 0, "timestamp": -2}
    listed = [{"name": topic, "partitions": [earliest]} for topic in _SOME]
    for version in (1, 5, 9):
        yield Probe("", "ListOffsets", version, {"replica_id": -1, "topics": listed})
    of_epoch = {"partition": 0, "leader_epoch": 0}
    epochs = [{"topic": topic, "partitions": [of_epoch]} for topic in _SOME]
    for version in (2, 3, 4):
        yield Probe("", "OffsetForLeaderEpoch", version, {"topics": epochs})
    from_start = {"partition_index": 0, "offset": 0}
    deleted = [{"name": topic, "partitions": [from_start]} for topic in _SOME]
    for version in (0, 2):
        yield Probe("", "DeleteRecords", version, {"topics": deleted, "timeout_ms": 5000})
    asked = [{"name": topic, "partition_indexes": [0]} for topic in _SOME]
    yield Probe("", "DescribeProducers", 0, {"topics": asked})


def _metadata() -> Iterator[Probe]:
    named = [{"name": topic} for topic in _SOME]
    for version in (1, 3, 4, 7, 9, 12):
        quiet = {"allow_auto_topic_creation": False} if version >= 4 else {}
        topics = named[:3] if version < 4 else named
        yield Probe("", "Metadata", version, {"topics": topics, **quiet})
    for version in (0, 1, 4, 8, 12):
        asked = {"topics": [] if version == 0 else None}
        yield Probe("of all topics", "Metadata", version, asked)
    operations = {
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    cluster = {"include_cluster_authorized_operations": True}
    for version in (8, 10):
        yield Probe(
            "with operations", "Metadata", version, {"topics": named, **operations, **cluster}
        )
        yield Probe("of no topic, with operations", "Metadata", version, {"topics": [], **cluster})
    all_of_them = {"topics": None, **operations}
    yield Probe("of all topics, with operations", "Metadata", 11, all_of_them)
    by_id = [{"topic_id": topic, "name": None} for topic in ("ta1", "ta9", "tb", "tax")]
    yield Probe("by id", "Metadata", 12, {"topics": by_id})
    yield Probe("by id, with operations", "Metadata", 12, {"topics": by_id, **operations})
    new = [{"name": topic} for topic in ("ta1", *NEW_TOPICS)]
    for version in (1, 12):
        yield Probe("creates topics", "Metadata", version, {"topics": new}, "new topics")
    invalid = {"topics": [{"name": "ta not a name"}, {"name": "tb?"}]}
    yield Probe("creates topics with invalid names", "Metadata", 9, invalid)
    internal = [{"name": "__consumer_offsets"}]
    yield Probe("of an internal topic", "Metadata", 9, {"topics": internal})


def _topics() -> Iterator[Probe]:
    created = [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in ("ta1", *NEW_TOPICS)
    ]
    for version in (2, 4, 5, 7):
        fields = {"topics": created, "timeout_ms": 10_000, "validate_only": True}
        yield Probe("validated", "CreateTopics", version, fields)
    fields = {"topics": created[:2], "timeout_ms": 10_000}
    yield Probe("", "CreateTopics", 7, fields, "new topics")
    for version in (1, 5):
        names = {"topic_names": ["ta9", "tax", "tbx"], "timeout_ms": 10_000}
        yield Probe("", "DeleteTopics", version, names, "topic ta9")
    for how, names_of in (
        ("by name", [{"name": "ta9"}, {"name": "tax"}]),
        ("by id", [{"topic_id": "ta9"}, {"topic_id": "tax"}]),
    ):
        yield Probe(how, "DeleteTopics", 6, {"topics": names_of, "timeout_ms": 10_000}, "topic ta9")
    grown = [{"name": topic, "count": 3, "assignments": None} for topic in _SOME]
    for version in (0, 3):
        fields = {"topics": grown, "timeout_ms": 10_000, "validate_only": True}
        yield Probe("validated", "CreatePartitions", version, fields)


def _configs() -> Iterator[Probe]:
    resources = [(2, topic) for topic in _SOME] + [(4, "1"), (4, ""), (8, "1")]
    keys = {2: "retention.ms", 4: "log.retention.ms", 8: "root"}
    described = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in resources
    ]
    for version in (1, 4):
        yield Probe("", "DescribeConfigs", version, {"resources": described})
    for kind, what in ((2, "of topics"), (4, "of brokers")):
        altered = [
            {
                "resource_type": of,
                "resource_name": name,
                "configs": [{"name": keys[of], "value": "1000000"}],
            }
            for of, name in resources
            if of == kind
        ]
        yield Probe(what, "AlterConfigs", 1, {"resources": altered, "validate_only": True})
    altered = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": keys[kind], "value": "WARN" if kind == 8 else "1000000"}],
        }
        for kind, name in resources
    ]
    for version in (0, 1):
        fields = {"resources": altered, "validate_only": True}
        yield Probe("", "IncrementalAlterConfigs", version, fields)


def _groups() -> Iterator[Probe]:
    keys = ["ga1", "ga2", "gb", "gax"]
    ids = ["xa1", "xa2", "xb", "xax"]
    yield Probe("of a group", "FindCoordinator", 0, {"key": "ga1"})
    for kind, what, names in ((0, "of groups", keys), (1, "of transactions", ids)):
        yield Probe(what, "FindCoordinator", 3, {"key": names[0], "key_type": kind})
        fields = {"coordinator_keys": names, "key_type": kind}
        yield Probe(what, "FindCoordinator", 4, fields)
    member = {"group_id": "ga1", "generation_id": 1, "member_id": "m"}
    join = {
        "group_id": "ga1",
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "member_id": "m",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    for version in (1, 5, 9):
        yield Probe("", "JoinGroup", version, join)
    yield Probe("", "SyncGroup", 0, member)
    yield Probe("", "SyncGroup", 5, {**member, **names})
    for version in (0, 4):
        yield Probe("", "Heartbeat", version, member)
    yield Probe("", "LeaveGroup", 0, {"group_id": "ga1", "member_id": "m"})
    yield Probe("", "LeaveGroup", 5, {"group_id": "ga1", "members": [{"member_id": "m"}]})
    described = ["ga1", "ga2", "gb", "gax"]
    yield Probe("", "DescribeGroups", 0, {"groups": described})
    for version in (3, 5):
        fields = {"groups": described, "include_authorized_operations": True}
        yield Probe("with operations", "DescribeGroups", version, fields)
    for version in (0, 3, 5):
        yield Probe("", "ListGroups", version, {})
    yield Probe("of one state", "ListGroups", 4, {"states_filter": ["Empty"]})
    for version in (0, 2):
        fields = {"groups_names": ["ga9", "gax", "gbx"]}
        yield Probe("", "DeleteGroups", version, fields, "group ga9")


def _offsets() -> Iterator[Probe]:
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [part]} for topic in _SOME]
    for version in (2, 5, 9):
        fields = {"group_id": "ga1", "generation_id_or_member_epoch": -1, "topics": topics}
        yield Probe("", "OffsetCommit", version, fields)
    fields = {"group_id": "gb", "generation_id_or_member_epoch": -1, "topics": topics}
    yield Probe("of gb", "OffsetCommit", 8, fields)
    asked = [{"name": topic, "partition_indexes": [0]} for topic in _SOME]
    for version in (1, 4, 7):
        yield Probe("", "OffsetFetch", version, {"group_id": "ga1", "topics": asked})
    for version in (2, 7):
        yield Probe("of all topics", "OffsetFetch", version, {"group_id": "ga1", "topics": None})
    groups = [{"group_id": group, "topics": asked} for group in ("ga1", "ga2", "gb", "gax")]
    for version in (8, 9):
        yield Probe("", "OffsetFetch", version, {"groups": groups})
    groups = [{"group_id": group, "topics": None} for group in ("ga1", "gb")]
    yield Probe("of all topics", "OffsetFetch", 9, {"groups": groups})
    removed = [
        {"name": topic, "partitions": [{"partition_index": 0}]} for topic in ("ta1", "tb", "tax")
    ]
    yield Probe("", "OffsetDelete", 0, {"group_id": "ga9", "topics": removed}, "group ga9")
    missing = {"group_id": "gax", "topics": removed}
    yield Probe("of an unknown group", "OffsetDelete", 0, missing)


def _transactions() -> Iterator[Probe]:
    for version in (0, 4):
        yield Probe("", "InitProducerId", version, {"transactional_id": None})
    init = {"transactional_id": "xa1", "transaction_timeout_ms": 900_000}
    for version in (1, 5):
        yield Probe("of xa1", "InitProducerId", version, init)
    fields = {**init, "producer_id": _OTHER_PRODUCER, "producer_epoch": 1}
    yield Probe("of xa1 with another producer id", "InitProducerId", 4, fields)
    producer = {"producer_id": _OTHER_PRODUCER, "producer_epoch": 0}
    for what, topics in (("", ("ta1", "tb")), ("with an unknown topic", ("ta1", "tax"))):
        added = [{"name": topic, "partitions": [0]} for topic in topics]
        old = {
            "v3_and_below_transactional_id": "xa1",
            "v3_and_below_producer_id": _OTHER_PRODUCER,
            "v3_and_below_topics": added,
        }
        for version in (0, 3):
            yield Probe(what, "AddPartitionsToTxn", version, old)
        if "tax" not in topics:
            transactions = [
                {"transactional_id": name, **producer, "verify_only": True, "topics": added}
                for name in ("xa1", "xb")
            ]
            yield Probe(what, "AddPartitionsToTxn", 4, {"transactions": transactions})


def _ends_of_transactions() -> Iterator[Probe]:
    producer = {"producer_id": _OTHER_PRODUCER, "producer_epoch": 0}
    of_xa1 = {"transactional_id": "xa1", **producer}
    for version in (0, 4):
        for group in ("ga1", "gb"):
            yield Probe(f"of {group}", "AddOffsetsToTxn", version, {**of_xa1, "group_id": group})
        yield Probe("", "EndTxn", version, {**of_xa1, "committed": True})
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    committed = [{"name": topic, "partitions": [part]} for topic in ("ta1", "tb", "tax")]
    for version in (0, 2, 3):
        yield Probe(
            "", "TxnOffsetCommit", version, {**of_xa1, "group_id": "ga1", "topics": committed}
        )
    marker = {
        "producer_id": _OTHER_PRODUCER,
        "topics": [{"name": "tax", "partition_indexes": [0]}],
    }
    for version in (0, 1):
        yield Probe("", "WriteTxnMarkers", version, {"markers": [marker]})
    ids = ["xa1", "xa2", "xb", "xax"]
    yield Probe("", "DescribeTransactions", 0, {"transactional_ids": ids})
    for version in (0, 1):
        yield Probe("", "ListTransactions", version, {})
    yield Probe("that are open", "ListTransactions", 0, {"state_filters": ["Ongoing", "None"]})


def _security() -> Iterator[Probe]:
    any_acl = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    nobody = {
        "resource_type": 2,
        "resource_name": "tz",
        "principal": "User:nobody",
        "host": "*",
        "operation": 8,
        "permission_type": 3,
    }
    for version in (1, 3):
        yield Probe("", "DescribeAcls", version, any_acl)
        yield Probe("", "CreateAcls", version, {"creations": [nobody]}, "ACLs")
        none = {**any_acl, "principal_filter": "User:none"}
        yield Probe("", "DeleteAcls", version, {"filters": [none]})
    user = {"entity_type": "user", "entity_name": "a"}
    quota = {"entity": [user], "ops": [{"key": "consumer_byte_rate", "value": 1.0}]}
    for version in (0, 1):
        yield Probe("", "DescribeClientQuotas", version, {"components": []})
        fields = {"entries": [quota], "validate_only": True}
        yield Probe("", "AlterClientQuotas", version, fields)
    # Apache Kafka 3.9 does not answer a request for all users that is not allowed.
    users = {"users": [{"name": "nobody"}]}
    yield Probe("", "DescribeUserScramCredentials", 0, users)
    removed = {"deletions": [{"name": "nobody", "mechanism": 1}]}
    yield Probe("", "AlterUserScramCredentials", 0, removed)


def _cluster() -> Iterator[Probe]:
    for version in (0, 1):
        yield Probe("", "DescribeCluster", version, {})
        fields = {"include_cluster_authorized_operations": True}
        yield Probe("with operations", "DescribeCluster", version, fields)
    for version in (1, 3, 4):
        yield Probe("", "DescribeLogDirs", version, {"topics": None})
    moved = {"path": "/not/there", "topics": [{"name": "ta1", "partitions": [0]}]}
    for version in (1, 2):
        yield Probe("", "AlterReplicaLogDirs", version, {"dirs": [moved]})
    elected = [{"topic": topic, "partitions": [0]} for topic in ("ta1", "tax")]
    for version in (0, 1, 2):
        yield Probe("", "ElectLeaders", version, {"topic_partitions": elected})
    cancelled = [
        {"name": topic, "partitions": [{"partition_index": 0, "replicas": None}]}
        for topic in ("ta1", "tax")
    ]
    yield Probe("", "AlterPartitionReassignments", 0, {"topics": cancelled})
    yield Probe("", "ListPartitionReassignments", 0, {"topics": None})
    feature = {"feature": "not.a.feature", "max_version_level": 1}
    for version in (0, 1):
        yield Probe("", "UpdateFeatures", version, {"feature_updates": [feature]})


def _brokers() -> Iterator[Probe]:
    """Requests between brokers; those that are allowed have an old epoch."""
    old = {"controller_id": BROKER_ID, "controller_epoch": 0, "broker_epoch": 0}
    # In the versions that ours serve: those that name topics by id.
    for version in (5, 7):
        yield Probe("", "LeaderAndIsr", version, old)
    for version in (3, 4):
        yield Probe("", "StopReplica", version, old)
    for version in (7, 8):
        yield Probe("", "UpdateMetadata", version, old)
    broker = {"broker_id": BROKER_ID, "broker_epoch": 0}
    for version in (2, 3):
        yield Probe("", "ControlledShutdown", version, broker)
    for version in (0, 3):
        yield Probe("", "AlterPartition", version, broker)
    yield Probe("", "AllocateProducerIds", 0, broker)


def principal(text: str) -> dict[str, str]:
    """The fields of a principal."""
    kind, _, name = text.partition(":")
    return {"principal_type": kind, "principal_name": name}


def _owner(text: str) -> dict[str, str]:
    return {f"owner_{field}": value for field, value in principal(text).items()}


def _tokens() -> Iterator[Probe]:
    for version in (1, 2, 3):
        fields = {"renewers": [principal(BOB)], "max_lifetime_ms": -1}
        yield Probe("", "CreateDelegationToken", version, fields, "new tokens")
    for owner in (ALICE, BOB, ADMIN):
        fields = {**_owner(owner), "renewers": [], "max_lifetime_ms": 3_600_000}
        yield Probe(f"of {owner}", "CreateDelegationToken", 3, fields, "new tokens")
    of_bob = {**_owner(BOB), "renewers": [principal("Group:staff")], "max_lifetime_ms": -1}
    yield Probe("with a group as renewer", "CreateDelegationToken", 3, of_bob, "new tokens")
    of_group = {**_owner("Group:staff"), "renewers": [principal(ADMIN)], "max_lifetime_ms": -1}
    yield Probe("of a group", "CreateDelegationToken", 3, of_group, "new tokens")
    for name in (*TOKENS, "unknown"):
        fields = {"hmac": name, "renew_period_ms": -1}
        yield Probe(f"of {name}", "RenewDelegationToken", 2, fields)
        fields = {"hmac": name, "expiry_time_period_ms": 86_400_000}
        yield Probe(f"of {name}", "ExpireDelegationToken", 2, fields)
    yield Probe("", "RenewDelegationToken", 1, {"hmac": "bobs", "renew_period_ms": -1})
    yield Probe(
        "", "ExpireDelegationToken", 1, {"hmac": "bobs", "expiry_time_period_ms": 86_400_000}
    )
    for version in (1, 2, 3):
        yield Probe("of all", "DescribeDelegationToken", version, {"owners": None})
    for what, owners in (
        ("of alice", [ALICE]),
        ("of bob", [BOB]),
        ("of two", [ALICE, ADMIN]),
        ("of a group", ["Group:staff"]),
        ("of nobody", []),
    ):
        fields = {"owners": [principal(owner) for owner in owners]}
        yield Probe(what, "DescribeDelegationToken", 3, fields)
    for name in ("own", "renewable"):
        fields = {"hmac": name, "expiry_time_period_ms": -1}
        yield Probe(f"of {name}, at once", "ExpireDelegationToken", 2, fields, f"token {name}")


def _named() -> Iterator[Probe]:
    for family in (
        _data, _metadata, _topics, _configs, _groups, _offsets, _transactions,
        _ends_of_transactions, _security, _cluster, _brokers, _tokens,
    ):  # fmt: skip
        for probe in family():
            name = f"{probe.api} v{probe.version} {probe.name}".rstrip()
            yield probe._replace(name=name)


PROBES: Final = tuple(_named())
assert len({probe.name for probe in PROBES}) == len(PROBES)
