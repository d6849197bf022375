"""Rows of internal topics, snapshots and checkpoints."""

import pytest

from odradek.files import checkpoints, snapshots
from odradek.files.internal_topics import (
    GroupRow,
    OffsetRow,
    UnreadableRow,
    group_rows,
    transaction_rows,
)
from odradek.files.segments import FileFormatError, batches
from odradek.log.producer_state import ProducerState
from odradek.model.partition import TopicPartition
from odradek.record.batch import read_header
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.wire.codec import encoder
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.messages.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)


def encoded(message, version):
    return version.to_bytes(2, "big") + bytes(encoder(type(message), version)(message))


def log_of(tmp_path, *records):
    path = tmp_path / f"{0:020d}.log"
    marker = build_marker(
        Marker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=1,
        base_offset=len(records),
    )  # fmt: skip
    path.write_bytes(bytes(build_batch(records)) + marker)
    return batches(path)


def test_offsets_and_groups(tmp_path):
    position = encoded(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    group = encoded(GroupMetadataKey(group="g"), 2)
    value = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=5)
    generation = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m1",
        current_state_timestamp=6,
        members=[MemberMetadata(member_id="m1")],
    )
    rows = list(
        group_rows(
            log_of(
                tmp_path,
                Record(position, encoded(value, 3), 1),
                Record(position, None, 1),
                Record(group, encoded(generation, 3), 1),
                Record(group, None, 1),
                Record(b"\0\x63", b"", 1),
                Record(position, b"\0\x03\0", 1),
                Record(None, b"x", 1),
            )
        )
    )

    assert rows[0] == OffsetRow(0, "g", "t", 3, 9, 2, "m", 5)
    assert rows[1].committed_offset is None
    assert rows[2].value.members[0].member_id == "m1"
    assert rows[3] == GroupRow(3, "g", None)
    assert [type(row) for row in rows[4:]] == [UnreadableRow] * 3
    assert "99" in rows[4].reason


@pytest.mark.parametrize("version", [0, 1])
def test_transactions(tmp_path, version):
    key = encoded(TransactionLogKey(transactional_id="tx"), 0)
    value = TransactionLogValue(
        producer_id=9,
        producer_epoch=1,
        transaction_timeout_ms=60,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=2,
        transaction_start_timestamp_ms=1,
    )
    rows = list(
        transaction_rows(
            log_of(
                tmp_path,
                Record(key, encoded(value, version), 1),
                Record(key, None, 1),
                Record(key, b"\0\x07", 1),
            )
        )
    )

    assert (rows[0].transactional_id, rows[0].state) == ("tx", "Ongoing")
    assert rows[0].value.transaction_partitions[0].partition_ids == [0, 1]
    assert rows[1].value is None
    assert rows[1].state is None
    assert isinstance(rows[2], UnreadableRow)


def test_a_snapshot(tmp_path):
    state = ProducerState()
    first = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 5)], producer_id=7,
                        producer_epoch=1, base_sequence=4, transactional=True)  # fmt: skip
    state.appended(read_header(first), 10)
    path = tmp_path / "12.snapshot"
    path.write_bytes(state.encode_snapshot())
    (row,) = snapshots.producers(path)

    assert (row.producer_id, row.first_sequence, row.last_sequence) == (7, 4, 5)
    assert (row.last_offset, row.transaction_first_offset) == (11, 10)
    path.write_bytes(b"nonsense and more")
    with pytest.raises(FileFormatError, match=r"12\.snapshot"):
        snapshots.producers(path)


def test_checkpoints(tmp_path):
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text("0\n2\nt 0 5\nu 1 7\n")
    assert checkpoints.offsets(path) == {TopicPartition("t", 0): 5, TopicPartition("u", 1): 7}
    path.write_text("0\n3\n0 0\n4 9\n7 12\n")
    assert checkpoints.leader_epochs(path) == [(0, 0), (4, 9), (7, 12)]
    with pytest.raises(FileFormatError, match="replication-offset-checkpoint"):
        checkpoints.offsets(path)
    path.write_text("version=0\nbroker.id=3\ncluster.id=abc\n")
    assert checkpoints.meta_properties(path)["broker.id"] == "3"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert checkpoints.topic_id(path) == bytes(15) + b"\1"
    path.write_text("nothing")
    with pytest.raises(FileFormatError):
        checkpoints.topic_id(path)


def test_a_part_of_a_log_can_be_read(tmp_path):
    path = tmp_path / f"{0:020d}.log"
    one = bytes(build_batch([Record(b"k", b"v", 5)]))
    path.write_bytes(one * 3)

    assert len(list(batches(path))) == 3
    assert [batch.position for batch in batches(path, start=len(one))] == [len(one), 2 * len(one)]
    assert len(list(batches(path, bytes_max=2 * len(one) + 5))) == 2
