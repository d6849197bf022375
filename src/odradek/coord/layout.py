"""Kafka's znodes: their paths, and the JSON in them, as Apache Kafka 3.9 writes it.

For every kind of node a path and an `encode_*` / `decode_*` pair between bytes and values of
`odradek.model`. Pure: `registry` and the controller's shell read and write. Configs
are in `layout_config`, ACLs and delegation tokens in `layout_security`.

The keys are in Kafka's order, on which readers do not depend. Older versions of a node are read
where Kafka reads them. What cannot be read raises `CorruptNodeError` with the path and the
problem, so that an operator can repair it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from odradek.coord.znode import CorruptNodeError, Fields, decimals, dump, parse, parse_epoch
from odradek.model.cluster import Broker, EndPoint
from odradek.model.ids import parse_uuid, uuid_text
from odradek.model.names import topic_name_problem
from odradek.model.partition import (
    RECOVERED,
    RECOVERING,
    Assignment,
    LeaderAndIsr,
    TopicPartition,
)

# -------------------------------------------------------------------------------- paths

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
FEATURE: Final = "/feature"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONSUMERS: Final = "/consumers"
# Nodes under /odradek are our own: no broker of Apache Kafka reads them.
ODRADEK_BROKERS: Final = "/odradek/brokers"
ODRADEK_FEATURES: Final = "/odradek/features"

_SEQUENCE_DIGITS_MAX: Final = 10  # ZooKeeper numbers with 32 bits
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HOST_LENGTH_MAX: Final = 255
_PORT_MAX: Final = 65_535
_NO_LEADER_LEAST: Final = -2  # of Apache Kafka, for a topic that is being deleted

# What every broker creates at its start if it does not exist, in this order.
TOP_LEVEL: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    "/config/changes",
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    ODRADEK_BROKERS,
)


def broker_path(broker: int) -> str:
    """The ephemeral registration of a broker. Its creation id (czxid) is the broker epoch."""
    return f"{BROKER_IDS}/{broker}"


def odradek_broker_path(broker: int) -> str:
    """The ephemeral node that marks a registered broker as an Odradek broker; no data."""
    return f"{ODRADEK_BROKERS}/{broker}"


def topic_path(topic: str) -> str:
    """The assignment of a topic."""
    return f"{TOPICS}/{topic}"


def topic_partitions_path(topic: str) -> str:
    """The parent of a topic's partitions; no data."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """The parent of a partition's state; no data."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """The leader and ISR of a partition. The version of the node is the partition epoch."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def delete_topic_path(topic: str) -> str:
    """A request to delete a topic; no data."""
    return f"{DELETE_TOPICS}/{topic}"


def consumer_offset_path(group_id: str, partition: TopicPartition) -> str:
    """The offset that a group of consumers of Kafka 0.8 has committed, as text."""
    return f"{CONSUMERS}/{group_id}/offsets/{partition.topic}/{partition.partition}"


def sequence_number(name: str, prefix: str) -> int | None:
    """The number of a sequential node, None if the name is not one with this prefix."""
    digits = name.removeprefix(prefix)
    if not name.startswith(prefix) or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) if len(digits) <= _SEQUENCE_DIGITS_MAX else None


# -------------------------------------------------------------- the cluster, the controller


def encode_cluster_id(cluster_id: str) -> bytes:
    """`/cluster/id`: `version` is a string here, and only here."""
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """The id that all brokers compare with their `meta.properties`."""
    return parse(CLUSTER_ID, data).text("id")


class ControllerNode(NamedTuple):
    """`/controller`: the current controller, and since when."""

    broker: int
    timestamp_ms: int
    kraft_controller_epoch: int = -1


def encode_controller(node: ControllerNode) -> bytes:
    return dump(
        {
            "version": 2,
            "brokerid": node.broker,
            "timestamp": str(node.timestamp_ms),
            "kraftControllerEpoch": node.kraft_controller_epoch,
        }
    )


def decode_controller(data: bytes | None) -> ControllerNode:
    """`/controller`, versions 1 and 2."""
    fields = parse(CONTROLLER, data)
    return ControllerNode(
        broker=fields.integer("brokerid"),
        timestamp_ms=fields.number_text("timestamp") if "timestamp" in fields else -1,
        kraft_controller_epoch=fields.integer("kraftControllerEpoch", -1),
    )


def encode_controller_epoch(controller_epoch: int) -> bytes:
    """`/controller_epoch`: only the number, in decimal."""
    return str(controller_epoch).encode()


def decode_controller_epoch(data: bytes | None) -> int:
    """The controller epoch: the number of controllers so far."""
    return parse_epoch(CONTROLLER_EPOCH, data)


class FeatureNode(NamedTuple):
    """`/feature`: the finalized features, if the feature system is enabled (IBP 2.7 and up)."""

    enabled: bool
    features: Mapping[str, int]


def encode_feature(node: FeatureNode) -> bytes:
    return dump({"features": dict(node.features), "version": 2, "status": int(node.enabled)})


def decode_feature(data: bytes | None) -> FeatureNode:
    """`/feature`, version 2, and version 1 with its ranges of levels."""
    fields = parse(FEATURE, data)
    features = fields.inner("features")
    if fields.integer("version") < 2:
        levels = {name: features.inner(name).integer("max_version_level") for name in features}
    else:
        levels = {name: features.integer(name) for name in features}
    return FeatureNode(enabled=fields.integer("status") == 1, features=levels)


class Features(NamedTuple):
    """`/odradek/features`: what all brokers support beyond Kafka 3.9. `epoch` counts changes."""

    epoch: int
    transaction_version: int


def encode_features(features: Features) -> bytes:
    levels = {"transaction.version": features.transaction_version}
    return dump({"version": 1, "epoch": features.epoch, "features": levels})


def decode_features(data: bytes | None) -> Features:
    fields = parse(ODRADEK_FEATURES, data)
    return Features(
        epoch=fields.long("epoch"),
        transaction_version=fields.inner("features").integer("transaction.version"),
    )


# ------------------------------------------------------------------------------ brokers

_END_POINT: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


def encode_broker(broker: Broker, *, timestamp_ms: int, jmx_port: int = -1) -> bytes:
    plaintext = next((e for e in broker.end_points if e.security_protocol == "PLAINTEXT"), None)
    node: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {
            e.listener: e.security_protocol for e in broker.end_points
        },
        "endpoints": [e.connection_string for e in broker.end_points],
    }
    if broker.rack is not None:
        node["rack"] = broker.rack
    # For readers from before listeners (version 1): a plaintext listener, or none.
    node |= {
        "jmx_port": jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": 5,
        "timestamp": str(timestamp_ms),
    }
    return dump(node)


def decode_broker(broker: int, data: bytes | None, *, broker_epoch: int) -> Broker:
    """`/brokers/ids/N`, versions 1 (host and port) to 5."""
    fields = parse(broker_path(broker), data)
    version = fields.integer("version")
    if version < 1:
        raise fields.wrong(f"version {version}, must be at least 1")
    if version == 1:
        host, port = fields.text("host"), fields.integer("port")
        end_points = [_checked_end_point(fields, "PLAINTEXT", "PLAINTEXT", host, port)]
    else:
        protocols = fields.text_map("listener_security_protocol_map")
        end_points = [_end_point(fields, text, protocols) for text in fields.texts("endpoints")]
    return Broker(
        id=broker,
        end_points=tuple(end_points),
        rack=fields.text("rack") if "rack" in fields else None,
        broker_epoch=broker_epoch,
    )


def _end_point(fields: Fields, text: str, protocols: Mapping[str, str]) -> EndPoint:
    match = _END_POINT.fullmatch(text)
    if match is None:
        raise fields.wrong(f"endpoint {text!r}, must be NAME://host:port")
    listener, host, port = match.groups()
    if len(port) > _SEQUENCE_DIGITS_MAX:
        raise fields.wrong(f"endpoint {text!r}, its port must be at most {_PORT_MAX}")
    # Before version 4 a listener's name was its security protocol.
    protocol = protocols.get(listener) if protocols else listener
    if protocol is None:
        raise fields.wrong(f"endpoint {text!r} is not in listener_security_protocol_map")
    return _checked_end_point(fields, listener.upper(), protocol.upper(), host, int(port))


def _checked_end_point(
    fields: Fields, listener: str, protocol: str, host: str, port: int
) -> EndPoint:
    if protocol not in _PROTOCOLS:
        raise fields.wrong(f"security protocol {protocol!r}, must be of {', '.join(_PROTOCOLS)}")
    if not -1 <= port <= _PORT_MAX:
        raise fields.wrong(f"port {port}, must be at most {_PORT_MAX}")
    if len(host) > _HOST_LENGTH_MAX:
        raise fields.wrong(f"a host of {len(host)} characters, must have {_HOST_LENGTH_MAX}")
    return EndPoint(listener=listener, security_protocol=protocol, host=host, port=port)


# ---------------------------------------------------------------- topics and partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNode:
    """`/brokers/topics/T`: the replicas of each partition."""

    topic_id: UUID | None  # None in a node from before Kafka 2.8, or written by its tools
    assignments: Mapping[int, Assignment]


def encode_topic(node: TopicNode) -> bytes:
    """`/brokers/topics/T`, version 3 (without an id if the topic has none yet)."""
    ordered = sorted(node.assignments.items())
    fields: dict[str, object] = {"partitions": {str(p): a.replicas for p, a in ordered}}
    if node.topic_id is not None:
        fields["topic_id"] = uuid_text(node.topic_id)
    fields["adding_replicas"] = {str(p): a.adding for p, a in ordered if a.adding}
    fields["removing_replicas"] = {str(p): a.removing for p, a in ordered if a.removing}
    return dump(fields | {"version": 3})


def decode_topic(topic: str, data: bytes | None) -> TopicNode:
    """`/brokers/topics/T`, versions 1 (partitions only) to 3."""
    fields = parse(topic_path(topic), data)
    problem = topic_name_problem(topic)
    if problem is not None:
        raise fields.wrong(f"no topic can have this name: {problem}")
    topic_id = None
    if "topic_id" in fields:
        try:
            topic_id = parse_uuid(fields.text("topic_id"))
        except ValueError as error:
            raise fields.wrong(f"topic_id: {error}") from None
    replicas = _replicas_by_partition(fields, "partitions")
    adding = _replicas_by_partition(fields, "adding_replicas")
    removing = _replicas_by_partition(fields, "removing_replicas")
    assignments = {}
    for partition in sorted(replicas):
        held, come, go = replicas[partition], adding.get(partition), removing.get(partition)
        if not held or len(set(held)) < len(held) or min(held) < 0:
            raise fields.wrong(f"partition {partition}: replicas {held}, must be distinct brokers")
        if not {*(come or ()), *(go or ())} <= {*held}:
            raise fields.wrong(
                f"partition {partition}: adding {come} and removing {go}, must be among {held}"
            )
        assignments[partition] = Assignment(replicas=held, adding=come or (), removing=go or ())
    return TopicNode(topic_id=topic_id, assignments=assignments)


def _replicas_by_partition(fields: Fields, key: str) -> dict[int, tuple[int, ...]]:
    inner = fields.inner(key)
    names = list(inner)
    numbers = decimals(names)
    if len(numbers) < len(names):
        wrong = next(name for name in names if not decimals([name]))
        raise fields.wrong(f"{key}: {wrong!r} is not a partition number")
    return {number: inner.integers(str(number)) for number in numbers}


class LeaderIsrAndControllerEpoch(NamedTuple):
    """`/brokers/topics/T/partitions/P/state`: leader and ISR, and the epoch of their controller."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


def encode_partition_state(state: LeaderIsrAndControllerEpoch) -> bytes:
    """The state, without its version, which is the node's own."""
    leader_and_isr = state.leader_and_isr
    fields: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": leader_and_isr.leader,
        "version": 1,
    }
    # Brokers from before KIP-704 do not have the key: it is written only if it is not the default.
    if leader_and_isr.leader_recovery_state != RECOVERED:
        fields["leader_recovery_state"] = leader_and_isr.leader_recovery_state
    return dump(fields | {"leader_epoch": leader_and_isr.leader_epoch, "isr": leader_and_isr.isr})


def decode_partition_state(
    partition: TopicPartition, data: bytes | None, *, partition_epoch: int
) -> LeaderIsrAndControllerEpoch:
    """The state of a partition at this version of its node."""
    fields = parse(partition_state_path(partition), data)
    leader = fields.integer("leader")
    isr = fields.integers("isr")
    recovery = fields.integer("leader_recovery_state", RECOVERED)
    if not isr or len(set(isr)) < len(isr) or min(isr) < 0:
        raise fields.wrong(f"isr {list(isr)}, must be distinct brokers and at least one")
    if leader >= 0 and leader not in isr:
        raise fields.wrong(f"leader {leader}, must be in the isr {list(isr)}")
    if leader < _NO_LEADER_LEAST:
        raise fields.wrong(f"leader {leader}, must be a broker or -1")
    if recovery not in (RECOVERED, RECOVERING):
        raise fields.wrong(f"leader_recovery_state {recovery}, must be 0 or 1")
    leader_and_isr = LeaderAndIsr(
        leader=leader,
        leader_epoch=fields.epoch("leader_epoch"),
        isr=isr,
        partition_epoch=partition_epoch,
        leader_recovery_state=recovery,
    )
    return LeaderIsrAndControllerEpoch(leader_and_isr, fields.integer("controller_epoch"))


# ------------------------------------------------------ requests by znode, notifications


def encode_reassign_partitions(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """`/admin/reassign_partitions`: the partitions still to be reassigned, and their replicas."""
    return dump(
        {
            "version": 1,
            "partitions": [
                {"topic": p.topic, "partition": p.partition, "replicas": list(replicas)}
                for p, replicas in sorted(targets.items())
            ],
        }
    )


def decode_reassign_partitions(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The reassignments that a tool requests by writing the node."""
    return {
        _topic_partition(entry): entry.integers("replicas")
        for entry in parse(REASSIGN_PARTITIONS, data).each("partitions")
    }


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The form of `/admin/preferred_replica_election` and of ISR change notifications."""
    return dump(
        {
            "version": 1,
            "partitions": [
                {"topic": p.topic, "partition": p.partition} for p in sorted(partitions)
            ],
        }
    )


def decode_partitions(path: str, data: bytes | None) -> Collection[TopicPartition]:
    """The partitions in such a node, in its order, each once."""
    return list(dict.fromkeys(map(_topic_partition, parse(path, data).each("partitions"))))


def _topic_partition(entry: Fields) -> TopicPartition:
    return TopicPartition(entry.text("topic"), entry.integer("partition"))


def encode_log_dir_event(broker: int) -> bytes:
    """A notification that a log directory of this broker failed."""
    return dump({"version": 1, "broker": broker, "event": 1})


def decode_log_dir_event(path: str, data: bytes | None) -> int:
    """The broker whose log directory failed."""
    return parse(path, data).integer("broker")


# -------------------------------------------------------------------------- producer ids

PRODUCER_ID_BLOCK_SIZE: Final = 1000


class ProducerIdBlock(NamedTuple):
    """`/latest_producer_id_block`: the block of ids that was allocated last, and its broker."""

    broker: int
    first_producer_id: int
    end_producer_id: int  # exclusive; Kafka writes the last one that is in the block


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return dump(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.first_producer_id),
            "block_end": str(block.end_producer_id - 1),
        }
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock | None:
    """`/latest_producer_id_block`; None if no id was ever allocated."""
    if not data:
        return None
    fields = parse(PRODUCER_ID_BLOCK, data)
    block = ProducerIdBlock(
        broker=fields.integer("broker"),
        first_producer_id=fields.number_text("block_start"),
        end_producer_id=fields.number_text("block_end") + 1,
    )
    if not 0 <= block.first_producer_id < block.end_producer_id:
        raise CorruptNodeError(PRODUCER_ID_BLOCK, f"{block}, must not end before it begins")
    return block
