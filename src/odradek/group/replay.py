"""A coordinator's state from its log: what stands last for each key, in the order of the log.

A group's record is what its last stable or empty generation was; its members are taken to be
alive until their sessions say otherwise. Positions of a transaction count from its commit marker
on, in the order in which they were appended. A tombstone removes the committed offset and those
pending in open transactions, as the coordinator that wrote it did and as a compaction of the log
does: the offset was deleted with its topic or by an administrator, see `can_expire`. A group that
has positions and no record of its own belongs to consumers that assign themselves.
"""

from odradek.group.group import Group
from odradek.group.offsets import Offsets, Place
from odradek.group.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
    key_version,
)
from odradek.record.records import Record


class Replay:
    """Fills the groups of one partition from its log."""

    def __init__(self, groups: dict[str, Group], transactions: dict[int, set[str]]) -> None:
        """`transactions` tells of a producer in which groups it has positions pending."""
        self._groups = groups
        self._transactions = transactions
        # The same few keys come again and again, and reading one costs more than all the rest.
        self._places: dict[bytes, tuple[str, Offsets, Place]] = {}
        self.next_order = 0

    def record(self, record: Record, producer_id: int) -> None:
        """Take one record in.

        Raises:
            InvalidRecordError, MalformedRequestError: it is damaged; nothing was taken.
        """
        key, value = record.key, record.value
        self.next_order = record.offset + 1
        known = self._places.get(key) if key is not None else None
        if known is None:
            version = key_version(key)
            assert key is not None
            if version == GROUP_KEY_VERSION:
                self._group_record(key, value)
                return
            if version not in OFFSET_KEY_VERSIONS:
                return  # of a newer Kafka: none of our groups
            group_id, topic, partition = decode_offset_key(key)
            group = self._group(group_id)
            known = self._places[key] = (group_id, group.offsets, (topic, partition))
        group_id, offsets, place = known
        if producer_id >= 0:
            self._in_transaction(group_id, offsets, place, record, producer_id)
        elif value is None:
            offsets.remove((place,))
        else:
            offsets.committed[place] = decode_offset_value(value, record.offset)

    def _in_transaction(
        self, group_id: str, offsets: Offsets, place: Place, record: Record, producer_id: int
    ) -> None:
        if record.value is None:
            return  # none of Kafka's coordinators writes that
        commits = {place: decode_offset_value(record.value, record.offset)}
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
        """All was replayed: forget what nothing is known of."""
        self._places.clear()
        for group in [group for group in self._groups.values() if group.is_blank]:
            del self._groups[group.group_id]
