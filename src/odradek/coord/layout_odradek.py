"""Our own znodes, all below `/odradek`: no broker of another kind reads there.

/odradek/lives/N    since which transaction broker N has lost nothing, and with which one it has
                    registered with an empty log directory. Written in the same transaction as
                    its registration: whose broker epoch is another was not registered by a
                    broker of ours
/odradek/isr/T-P    what is remembered of a partition's last ISRs, written in the transaction
                    that writes its state; see `odradek.controller.last_isr`
/odradek/noted      which lives of brokers the controller knows of, and since when: a state
                    that is older was decided without knowing that life, be it younger than
                    the registration
/odradek/coordinators/T    how many partitions of an internal topic keys are hashed over
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from odradek.controller.last_isr import Left, Memory
from odradek.coord.znode import dump, parse
from odradek.model.ids import parse_uuid, uuid_text
from odradek.model.partition import TopicPartition

LIVES: Final = "/odradek/lives"
ISR: Final = "/odradek/isr"
NOTED: Final = "/odradek/noted"
COORDINATORS: Final = "/odradek/coordinators"
SINCE_NOW: Final = 0  # the transaction that writes it has no number yet


class BrokerLogs(NamedTuple):
    """What a broker has said of its logs, by the transactions that wrote it."""

    clean_since: int  # it has lost nothing since
    empty_since: int = -1  # a log directory was empty then; -1: none ever was


class Noted(NamedTuple):
    """One life of a broker, and the transaction with which a controller noted it."""

    broker_epoch: int
    transaction_id: int


class NotedLives(NamedTuple):
    """What a controller knew when it noted down the lives of brokers last."""

    controller_epoch: int
    brokers: Mapping[int, Noted]


class CoordinatorCount(NamedTuple):
    """How many partitions the keys of an internal topic are hashed over, as long as it is this."""

    topic_id: UUID | None
    partitions: int


def life_path(broker: int) -> str:
    """What is known of how a broker stopped."""
    return f"{LIVES}/{broker}"


def memory_path(partition: TopicPartition) -> str:
    """What is remembered of a partition."""
    return f"{ISR}/{partition}"


def coordinator_count_path(topic: str) -> str:
    """How many partitions of an internal topic keys are hashed over."""
    return f"{COORDINATORS}/{topic}"


def encode_coordinator_count(count: CoordinatorCount) -> bytes:
    """`/odradek/coordinators/T`."""
    topic_id = None if count.topic_id is None else uuid_text(count.topic_id)
    fields = {"version": 1, "partitions": count.partitions}
    return dump(fields if topic_id is None else fields | {"topic_id": topic_id})


def decode_coordinator_count(topic: str, data: bytes | None) -> CoordinatorCount:
    """`/odradek/coordinators/T`."""
    fields = parse(coordinator_count_path(topic), data)
    partitions = fields.integer("partitions")
    if partitions < 1:
        raise fields.wrong(f"{partitions} partitions, must be at least 1")
    try:
        topic_id = parse_uuid(fields.text("topic_id")) if "topic_id" in fields else None
    except ValueError as error:
        raise fields.wrong(f"topic_id: {error}") from None
    return CoordinatorCount(topic_id, partitions)


def encode_broker(logs: BrokerLogs) -> bytes:
    """What it says of its logs; `SINCE_NOW` is the transaction that writes this."""
    fields = {"version": 1, "clean_since": logs.clean_since}
    if logs.empty_since >= 0:
        fields["empty_since"] = logs.empty_since
    return dump(fields)


def decode_broker(broker: int, data: bytes | None, *, modified_id: int) -> BrokerLogs:
    """What it has said of its logs; `modified_id` wrote the node."""
    fields = parse(life_path(broker), data)
    empty_since = fields.integer("empty_since", -1) or modified_id
    if empty_since > modified_id:
        empty_since = -1  # counted by another store, from which the node was copied
    return BrokerLogs(fields.integer("clean_since") or modified_id, empty_since)


def encode_memory(memory: Memory) -> bytes:
    """A partition's memory."""
    return dump(
        {
            "version": 1,
            "partition_epoch": memory.partition_epoch,
            "controller_epoch": memory.controller_epoch,
            "left": [
                {"broker": replica, "isr_size": gone.isr_size, "transaction": gone.transaction_id}
                for replica, gone in sorted(memory.left.items())
            ],
            "isr": [
                {"broker": replica, "transaction": known}
                for replica, known in sorted(memory.isr.items())
            ],
        }
    )


def decode_memory(partition: TopicPartition, data: bytes | None) -> Memory:
    """A partition's memory."""
    fields = parse(memory_path(partition), data)
    return Memory(
        fields.integer("partition_epoch"),
        fields.integer("controller_epoch"),
        left={
            gone.integer("broker"): Left(gone.integer("isr_size"), gone.integer("transaction"))
            for gone in fields.each("left")
        },
        isr={known.integer("broker"): known.integer("transaction") for known in fields.each("isr")},
    )


def encode_noted(noted: NotedLives) -> bytes:
    """The lives that a controller knows of."""
    return dump(
        {
            "version": 1,
            "controller_epoch": noted.controller_epoch,
            "brokers": [
                {"broker": broker, "epoch": life.broker_epoch, "transaction": life.transaction_id}
                for broker, life in sorted(noted.brokers.items())
            ],
        }
    )


def decode_noted(data: bytes | None, *, modified_id: int) -> NotedLives:
    """The lives that a controller knew of; `modified_id` wrote the node."""
    fields = parse(NOTED, data)
    return NotedLives(
        fields.integer("controller_epoch"),
        {
            life.integer("broker"): Noted(
                life.integer("epoch"), life.integer("transaction") or modified_id
            )
            for life in fields.each("brokers")
        },
    )
