"""A coordinator's state from its log: the last record of each key counts.

A group's record has its last stable or empty generation; the sessions of its members begin again.
Offsets of a transaction are committed by its commit marker, in the order in which they were
appended. A tombstone removes the committed offset and those pending in open transactions, as the
coordinator that wrote it did and as a compaction of the log does: the offset was deleted with its
topic or by an administrator, see `can_expire`. A group that has offsets and no record of its own
belongs to consumers that assign partitions themselves.
"""

from odradek.group.group import Group
from odradek.group.offsets import Offsets
from odradek.group.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
    key_version,
)
from odradek.model.partition import TopicPartition
from odradek.record.records import InvalidRecordError, Record


class Replay:
    """Fills the groups of one partition from its log."""

    def __init__(self, groups: dict[str, Group], transactions: dict[int, set[str]]) -> None:
        """`transactions` has, by producer id, the groups in which offsets are pending."""
        self._groups = groups
        self._transactions = transactions
        # The same keys come again and again, and decoding one costs more than all the rest.
        self._decoded_keys: dict[bytes, tuple[str, Offsets, TopicPartition]] = {}
        self.next_order = 0

    def record(self, record: Record, producer_id: int) -> None:
        """Take one record.

        Raises:
            InvalidRecordError, MalformedRequestError: it is damaged; nothing was taken.
        """
        key, value = record.key, record.value
        self.next_order = record.offset + 1
        if key is None:
            raise InvalidRecordError("a record without a key")
        cached = self._decoded_keys.get(key)
        if cached is None:
            version = key_version(key)
            if version == GROUP_KEY_VERSION:
                self._group_record(key, value)
                return
            if version not in OFFSET_KEY_VERSIONS:
                return  # of a newer Kafka, for groups of another kind
            group_id, topic, index = decode_offset_key(key)
            group = self._group(group_id)
            cached = self._decoded_keys[key] = (
                group_id,
                group.offsets,
                TopicPartition(topic, index),
            )
        group_id, offsets, partition = cached
        if producer_id >= 0:
            self._in_transaction(group_id, offsets, partition, record, producer_id)
        elif value is None:
            offsets.remove((partition,))
        else:
            offsets.committed[partition] = decode_offset_value(value, record.offset)

    def _in_transaction(
        self,
        group_id: str,
        offsets: Offsets,
        partition: TopicPartition,
        record: Record,
        producer_id: int,
    ) -> None:
        if record.value is None:
            return  # no coordinator of Kafka writes that
        commits = {partition: decode_offset_value(record.value, record.offset)}
        offsets.stage_in_transaction(producer_id, commits)
        offsets.settle_in_transaction(producer_id, commits, appended=True)
        self._transactions.setdefault(producer_id, set()).add(group_id)

    def _group_record(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_group_key(key)
        if value is None:
            if group_id in self._groups:
                self._groups[group_id].restore(None)
            return
        self._group(group_id).restore(decode_group_value(value))

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
        return group

    def end(self) -> None:
        """At the end of the log: groups of which nothing is left are removed."""
        self._decoded_keys.clear()
        for group in [group for group in self._groups.values() if group.is_blank]:
            del self._groups[group.group_id]
