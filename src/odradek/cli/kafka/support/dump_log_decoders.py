"""Decoders of `kafka-dump-log` for keys and values: text, numbers, records of internal topics.

A decoder returns the texts after `key:` and `payload:` for a record, or None. Records of
`__consumer_offsets` are printed as JSON as in Kafka 3.9, with the names of Kafka's message
definitions; records of `__transaction_state` as a line in Kafka's format.
"""

import base64
import json
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from odradek.cli.kafka.support.java import hash_order, partition_hash
from odradek.files.internal_topics import (
    GROUP_KEY,
    OFFSET_KEYS,
    UnreadableError,
    decoded,
    state_name,
    transaction_value,
    version_of,
)
from odradek.files.segments import FileFormatError
from odradek.model.errors import MalformedRequestError
from odradek.record.records import Record
from odradek.wire.codec import decoder
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.wire.messages.transaction_state import TransactionLogKey
from odradek.wire.schema import Message

Decoder: TypeAlias = Callable[[Record], tuple[str | None, str | None]]

_DELETE: Final = "<DELETE>"
_CONSUMER: Final = "consumer"


def decoder_of(chosen: str | None, key_class: str | None, value_class: str | None) -> Decoder:
    """The decoder that the command line selects.

    Raises:
        FileFormatError: there is no decoder of that name.
    """
    match chosen:
        case "offsets-decoder":
            return _group_record
        case "transaction-log-decoder":
            return _transaction_record
        case None:
            return _by_class(key_class, value_class)
        case _:
            raise FileFormatError(
                f"--{chosen}: records of KRaft and of tiered storage are not supported"
            )


# ------------------------------------------------------------------------- text and numbers


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(layout: Struct) -> Callable[[bytes], str]:
    def show(data: bytes) -> str:
        if len(data) < layout.size:
            raise FileFormatError(f"{len(data)} bytes are not a number of {layout.size}")
        return str(layout.unpack_from(data)[0])

    return show


_CLASSES: Final[dict[str, Callable[[bytes], str]]] = {
    "StringDecoder": _text,
    "IntegerDecoder": _number(Struct(">i")),
    "LongDecoder": _number(Struct(">q")),
    "DefaultDecoder": lambda data: data.hex(),
}
_PACKAGE: Final = "org.apache.kafka.tools.api"
_OLD_PACKAGE: Final = "kafka.serializer"


def _class(name: str | None) -> Callable[[bytes], str]:
    if name is None:
        return _text
    package, _, short = name.rpartition(".")
    if package not in (_PACKAGE, _OLD_PACKAGE) or short not in _CLASSES:
        known = ", ".join(f"{_PACKAGE}.{each}" for each in _CLASSES)
        raise FileFormatError(f"{name}: no decoder of this name; there are {known}")
    if package == _OLD_PACKAGE:
        print(f"{name} is deprecated. Please use {_PACKAGE}.{short} instead")
    return _CLASSES[short]


def _by_class(key_class: str | None, value_class: str | None) -> Decoder:
    show_key, show_value = _class(key_class), _class(value_class)

    def decode(record: Record) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else show_key(record.key),
            None if record.value is None else show_value(record.value),
        )

    return decode


# ------------------------------------------------------------------------ __transaction_state


def _transaction_record(record: Record) -> tuple[str | None, str | None]:
    try:
        version = version_of(record.key)
        if version != 0:
            return f"unknown::version={version}", None
        key, _ = decoded(TransactionLogKey, record.key or b"")
        shown = f"transaction_metadata::transactionalId={key.transactional_id}"
        if record.value is None:
            return shown, _DELETE
        value = transaction_value(record.value)
    except UnreadableError as error:
        raise FileFormatError(
            f"the record at offset {record.offset} is not a transaction record: {error}"
        ) from None
    partitions = hash_order(
        [
            (topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ],
        partition_hash,
    )
    names = ",".join(f"{topic}-{number}" for topic, number in partitions)
    return shown, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},"
        f"state={state_name(value.transaction_status)},partitions=[{names}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )


# ------------------------------------------------------------------------- __consumer_offsets


def _group_record(record: Record) -> tuple[str | None, str | None]:
    if record.key is None:
        raise FileFormatError(
            f"Failed to decode message at offset {record.offset} using offset topic decoder "
            "(message had a missing key)"
        )
    what = "key"
    try:
        version = version_of(record.key)
        if version in OFFSET_KEYS:
            key: Message = decoded(OffsetCommitKey, record.key)[0]
        elif version == GROUP_KEY:
            key = decoded(GroupMetadataKey, record.key)[0]
        else:
            return f"Unknown record type {version} at offset {record.offset}, skipping.", None
        shown = _json({"type": str(version), "data": as_tree(key, version)})
        if record.value is None:
            return shown, _DELETE
        what, version = "value", version_of(record.value)
        return shown, _json({"version": str(version), "data": _group_value(key, record.value)})
    except UnreadableError as error:
        reason = (
            f"Error at offset {record.offset}, skipping. Could not read record with version "
            f"{version_of(record.key if what == 'key' else record.value)} from {what}'s buffer "
            f"due to: {error}."
        )
        return reason, None


def _group_value(key: Message, value: bytes) -> dict[str, Any]:
    if isinstance(key, OffsetCommitKey):
        commit, version = decoded(OffsetCommitValue, value)
        return as_tree(commit, version)
    group, version = decoded(GroupMetadataValue, value)
    tree = as_tree(group, version)
    if group.protocol_type == _CONSUMER:
        for member, shown in zip(group.members, tree["members"], strict=True):
            shown["subscription"] = _protocol(
                ConsumerProtocolSubscription, member.subscription, shown["subscription"]
            )
            shown["assignment"] = _protocol(
                ConsumerProtocolAssignment, member.assignment, shown["assignment"]
            )
    return tree


def _protocol(message_class: type[Message], data: Any, otherwise: object) -> object:
    """A message of the consumer protocol as JSON; a newer version is parsed as the newest known."""
    if len(data) < 2:
        return otherwise
    version = min(int.from_bytes(data[:2], "big", signed=True), message_class.SCHEMA.versions.last)
    try:
        message, _ = decoder(message_class, max(0, version))(memoryview(data), 2)
    except MalformedRequestError:
        return otherwise
    return as_tree(message, version)


def as_tree(message: Message, version: int) -> dict[str, Any]:
    """A message in Kafka's JSON form: the fields of that version, with Kafka's names."""
    return {
        _camel(field.name): _value(getattr(message, field.name), version)
        for field in message.SCHEMA.fields
        if field.versions.first <= version <= field.versions.last
    }


def _value(value: object, version: int) -> object:
    match value:
        case Message():
            return as_tree(value, version)
        case list():
            return [_value(each, version) for each in value]
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case _:
            return value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _json(tree: object) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
