"""Formatters of `__consumer_offsets` and `__transaction_state` for `kafka-console-consumer`.

Kafka 3.9 has each formatter twice: under its new name it prints JSON objects without a line end;
under its old name a line in the form of a Scala class. Records of another kind, and records that
cannot be parsed, are skipped.
"""

import json
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from odradek.cli.kafka.support.dump_log_decoders import as_tree
from odradek.cli.kafka.support.java import hash_order, partition_hash, string_hash
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.files.internal_topics import (
    GROUP_KEY,
    OFFSET_KEYS,
    UnreadableError,
    decoded,
    state_name,
    transaction_value,
    version_of,
)
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.messages.transaction_state import TransactionLogKey
from odradek.wire.schema import Message

_NEW: Final = "org.apache.kafka.tools.consumer."
_GROUPS: Final = "kafka.coordinator.group.GroupMetadataManager$"
_TRANSACTIONS: Final = "kafka.coordinator.transaction.TransactionLog$"

Show = Callable[[bytes, bytes | None], str | None]


class Internal:
    """A formatter of an internal topic: calls one of the functions below."""

    def __init__(self, show: Show) -> None:
        self._show = show

    def show(self, record: ConsumerRecord) -> bytes:
        """The bytes to print for a record; b"" for one of another kind."""
        if record.key is None:
            return b""
        try:
            shown = self._show(record.key, record.value)
        except UnreadableError:
            return b""
        return b"" if shown is None else shown.encode()


def internal(name: str) -> Internal | None:
    """The formatter of this name; None if it is not one of an internal topic."""
    show = _SHOWN.get(name)
    return None if show is None else Internal(show)


# ------------------------------------------------------------------------------- as JSON


def _json(key: dict[str, Any], value: dict[str, Any] | None) -> str:
    return json.dumps({"key": key, "value": value}, separators=(",", ":"), ensure_ascii=False)


def _part(version: int, data: dict[str, Any]) -> dict[str, Any]:
    return {"version": version, "data": data}


def _as_json(
    versions: Collection[int],
    key_class: type[Message],
    value_of: Callable[[bytes], tuple[Message, int]],
) -> Show:
    """Shows the records with a key of these versions; `value_of` returns a value's version, too."""

    def show(key: bytes, value: bytes | None) -> str | None:
        version = version_of(key)
        if version not in versions:
            return None
        name, _ = decoded(key_class, key)
        shown = None
        if value is not None:
            message, value_version = value_of(value)
            shown = _part(value_version, as_tree(message, value_version))
        return _json(_part(version, as_tree(name, version)), shown)

    return show


def _transaction(value: bytes) -> tuple[Message, int]:
    version = version_of(value)
    return transaction_value(value), version


# --------------------------------------------------------------------- as Scala prints it


def _option(value: object) -> str:
    return "None" if value is None else f"Some({value})"


def _offsets_text(key: bytes, value: bytes | None) -> str | None:
    if version_of(key) not in OFFSET_KEYS:
        return None
    name, _ = decoded(OffsetCommitKey, key)
    left = f"[{name.group},{name.topic},{name.partition}]::"
    if value is None:
        return f"{left}NULL\n"
    at, _ = decoded(OffsetCommitValue, value)
    epoch = "Optional.empty" if at.leader_epoch < 0 else f"Optional[{at.leader_epoch}]"
    expires = "None" if at.expire_timestamp < 0 else f"Some({at.expire_timestamp})"
    return (
        f"{left}OffsetAndMetadata(offset={at.offset}, leaderEpoch={epoch}, "
        f"metadata={at.metadata}, commitTimestamp={at.commit_timestamp}, "
        f"expireTimestamp={expires})\n"
    )


def _groups_text(key: bytes, value: bytes | None) -> str | None:
    if version_of(key) != GROUP_KEY:
        return None
    name, _ = decoded(GroupMetadataKey, key)
    if value is None:
        return f"{name.group}::NULL\n"
    group, _ = decoded(GroupMetadataValue, value)
    members = {member.member_id: member for member in group.members}
    shown = ", ".join(
        f"{member_id} -> MemberMetadata(memberId={member_id}, "
        f"groupInstanceId={_option(members[member_id].group_instance_id)}, "
        f"clientId={members[member_id].client_id}, clientHost={members[member_id].client_host}, "
        f"sessionTimeoutMs={members[member_id].session_timeout}, "
        f"rebalanceTimeoutMs={members[member_id].rebalance_timeout}, "
        f"supportedProtocols=List({group.protocol}))"
        for member_id in hash_order(members, string_hash)
    )
    state = "Stable" if members else "Empty"
    return (
        f"{name.group}::GroupMetadata(groupId={name.group}, generation={group.generation}, "
        f"protocolType={_option(group.protocol_type or None)}, currentState={state}, "
        f"members=HashMap({shown}))\n"
    )


def _transactions_text(key: bytes, value: bytes | None) -> str | None:
    if version_of(key) != 0:
        return None
    name, _ = decoded(TransactionLogKey, key)
    left = f"{name.transactional_id}::"
    if value is None:
        return f"{left}NULL\n"
    state = transaction_value(value)
    partitions = hash_order(
        [
            (topic.topic, number)
            for topic in state.transaction_partitions or ()
            for number in topic.partition_ids
        ],
        partition_hash,
    )
    names = ", ".join(f"{topic}-{number}" for topic, number in partitions)
    return (
        f"{left}TransactionMetadata(transactionalId={name.transactional_id}, "
        f"producerId={state.producer_id}, producerEpoch={state.producer_epoch}, "
        f"txnTimeoutMs={state.transaction_timeout_ms}, "
        f"state={state_name(state.transaction_status)}, pendingState=None, "
        f"topicPartitions=HashSet({names}), "
        f"txnStartTimestamp={state.transaction_start_timestamp_ms}, "
        f"txnLastUpdateTimestamp={state.transaction_last_update_timestamp_ms})\n"
    )


_SHOWN: Final[dict[str, Show]] = {
    f"{_NEW}OffsetsMessageFormatter": _as_json(
        OFFSET_KEYS, OffsetCommitKey, partial(decoded, OffsetCommitValue)
    ),
    f"{_NEW}GroupMetadataMessageFormatter": _as_json(
        {GROUP_KEY}, GroupMetadataKey, partial(decoded, GroupMetadataValue)
    ),
    f"{_NEW}TransactionLogMessageFormatter": _as_json({0}, TransactionLogKey, _transaction),
    f"{_GROUPS}OffsetsMessageFormatter": _offsets_text,
    f"{_GROUPS}GroupMetadataMessageFormatter": _groups_text,
    f"{_TRANSACTIONS}TransactionLogMessageFormatter": _transactions_text,
}
