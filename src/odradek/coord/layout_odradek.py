"""Our own znodes, all below `/odradek`: Apache's brokers do not read them.

/odradek/lives/N    the transaction since which broker N has lost no record, and those with
                    which it registered with an empty log directory, and with an older copy of
                    its log directories. Written in the same transaction as its registration:
                    if the broker epoch is another one, the registration is not an Odradek
                    broker's
/odradek/isr/T-P    the last ISRs of a partition, written in the transaction that writes its
                    state; see `odradek.controller.isr_history`
/odradek/noted      the registrations that the controller has in its state, and since when: a
                    partition state that is older was decided without that registration, even
                    if it was written after it
/odradek/coordinators/T    the number of partitions over which an internal topic's keys are hashed
/odradek/counters/N    a number that broker N raises again and again, and has on its disks too:
                    from it follows which of the two is older, the store or the disks
/odradek/restored   when the store was found to be older than the logs, and the controller epoch
                    up to which partition states were decided by a store that knew less
/odradek/decoys     the secret from which the brokers derive the SCRAM salts of unknown users
/odradek/restoring  ephemeral: the broker that raises what the store has to what the logs prove
"""

import base64
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from odradek.controller.isr_history import IsrHistory, Left
from odradek.coord.znode import dump, parse
from odradek.model.ids import parse_uuid, uuid_text
from odradek.model.partition import TopicPartition

LIVES: Final = "/odradek/lives"
ISR: Final = "/odradek/isr"
NOTED: Final = "/odradek/noted"
COORDINATORS: Final = "/odradek/coordinators"
COUNTERS: Final = "/odradek/counters"
RESTORED: Final = "/odradek/restored"
DECOYS: Final = "/odradek/decoys"
RESTORING: Final = "/odradek/restoring"
DECOY_SECRET_BYTES: Final = 32
SINCE_NOW: Final = 0  # the transaction that writes it: it has no id yet


class BrokerLogs(NamedTuple):
    """What a broker reported of its logs at its registrations, as transaction ids."""

    clean_since: int  # it has lost no record since
    empty_since: int = -1  # a log directory was empty then; -1: never
    put_back_since: int = -1  # its log directories were an older copy then; -1: never


class NotedRegistration(NamedTuple):
    """One registration of a broker, and the transaction with which a controller stored it."""

    broker_epoch: int
    transaction_id: int


class NotedRegistrations(NamedTuple):
    """The registrations that a controller had in its state when it stored them last."""

    controller_epoch: int
    brokers: Mapping[int, NotedRegistration]


class CoordinatorCount(NamedTuple):
    """The number of partitions over which the keys of an internal topic with this id are hashed."""

    topic_id: UUID | None
    partitions: int


class StoreCounter(NamedTuple):
    """A broker's counter, and the last restoration of the store that the broker knew of."""

    value: int = 0
    restored: int = -1  # `Restored.controller_epoch`


class Restored(NamedTuple):
    """The store was found to be older than the logs, and was raised to what they prove."""

    controller_epoch: int  # partition states up to this one may name an ISR that was outdated
    broker: int  # which found it
    at_ms: int
    proof: str


def counter_path(broker: int) -> str:
    return f"{COUNTERS}/{broker}"


def broker_logs_path(broker: int) -> str:
    return f"{LIVES}/{broker}"


def isr_history_path(partition: TopicPartition) -> str:
    return f"{ISR}/{partition}"


def coordinator_count_path(topic: str) -> str:
    return f"{COORDINATORS}/{topic}"


def encode_coordinator_count(count: CoordinatorCount) -> bytes:
    topic_id = None if count.topic_id is None else uuid_text(count.topic_id)
    fields = {"version": 1, "partitions": count.partitions}
    return dump(fields if topic_id is None else fields | {"topic_id": topic_id})


def decode_coordinator_count(topic: str, data: bytes | None) -> CoordinatorCount:
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
    """`/odradek/lives/N`; `SINCE_NOW` stands for the transaction that writes it."""
    fields = {"version": 1, "clean_since": logs.clean_since}
    if logs.empty_since >= 0:
        fields["empty_since"] = logs.empty_since
    if logs.put_back_since >= 0:
        fields["put_back_since"] = logs.put_back_since
    return dump(fields)


def decode_broker(broker: int, data: bytes | None, *, modified_id: int) -> BrokerLogs:
    """`/odradek/lives/N`, as written by the transaction `modified_id`."""
    fields = parse(broker_logs_path(broker), data)
    lost = (fields.long(name, -1) or modified_id for name in ("empty_since", "put_back_since"))
    # A later one: the node was copied from another store, with ids of its own.
    known = (since if since <= modified_id else -1 for since in lost)
    return BrokerLogs(fields.long("clean_since") or modified_id, *known)


def encode_isr_history(history: IsrHistory) -> bytes:
    return dump(
        {
            "version": 1,
            "partition_epoch": history.partition_epoch,
            "controller_epoch": history.controller_epoch,
            "left": [
                {"broker": replica, "isr_size": left.isr_size, "transaction": left.transaction_id}
                for replica, left in sorted(history.left.items())
            ],
            "isr": [
                {"broker": replica, "transaction": known}
                for replica, known in sorted(history.isr.items())
            ],
        }
    )


def decode_isr_history(partition: TopicPartition, data: bytes | None) -> IsrHistory:
    fields = parse(isr_history_path(partition), data)
    return IsrHistory(
        fields.integer("partition_epoch"),
        fields.integer("controller_epoch"),
        left={
            left.integer("broker"): Left(left.integer("isr_size"), left.long("transaction"))
            for left in fields.each("left")
        },
        isr={known.integer("broker"): known.long("transaction") for known in fields.each("isr")},
    )


def encode_noted(registrations: NotedRegistrations) -> bytes:
    """`/odradek/noted`; `SINCE_NOW` stands for the transaction that writes it."""
    return dump(
        {
            "version": 1,
            "controller_epoch": registrations.controller_epoch,
            "brokers": [
                {"broker": broker, "epoch": noted.broker_epoch, "transaction": noted.transaction_id}
                for broker, noted in sorted(registrations.brokers.items())
            ],
        }
    )


def decode_noted(data: bytes | None, *, modified_id: int) -> NotedRegistrations:
    """`/odradek/noted`, as written by the transaction `modified_id`."""
    fields = parse(NOTED, data)
    return NotedRegistrations(
        fields.integer("controller_epoch"),
        {
            noted.integer("broker"): NotedRegistration(
                noted.long("epoch"), noted.long("transaction") or modified_id
            )
            for noted in fields.each("brokers")
        },
    )


def encode_counter(counter: StoreCounter) -> bytes:
    return dump({"version": 1, "value": counter.value, "restored": counter.restored})


def decode_counter(broker: int, data: bytes | None) -> StoreCounter:
    fields = parse(counter_path(broker), data)
    return StoreCounter(fields.long("value"), fields.integer("restored"))


def encode_restored(restored: Restored) -> bytes:
    return dump(
        {
            "version": 1,
            "controller_epoch": restored.controller_epoch,
            "broker": restored.broker,
            "timestamp": str(restored.at_ms),
            "proof": restored.proof,
        }
    )


def decode_restored(data: bytes | None) -> Restored:
    fields = parse(RESTORED, data)
    return Restored(
        fields.integer("controller_epoch"),
        fields.integer("broker"),
        fields.number_text("timestamp"),
        fields.text("proof"),
    )


def encode_decoy_secret(secret: bytes) -> bytes:
    return dump({"version": 1, "secret": base64.b64encode(secret).decode()})


def decode_decoy_secret(data: bytes | None) -> bytes:
    fields = parse(DECOYS, data)
    try:
        secret = base64.b64decode(fields.text("secret"), validate=True)
    except ValueError:  # also that of text beyond ASCII
        raise fields.wrong("secret: not base64") from None
    if len(secret) < DECOY_SECRET_BYTES:
        raise fields.wrong(f"a secret of {len(secret)} bytes, must be {DECOY_SECRET_BYTES}")
    return secret
